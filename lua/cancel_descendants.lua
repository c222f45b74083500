#!lua flags=allow-oom
-- Goes on telling a family that its root was canceled. Bounded: to be called again.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   id     text    the root
--   limit  number  jobs
-- Returns
--   how many are left, as far as that is known: those below them are not counted yet
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   canceled | canceling; of a parent: waiting, delayed, failed; removed (of the queue) where only some are kept
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, untold
local _, _ = KEYS[1], KEYS[2]
local id, limit = ARGV[1], tonumber(ARGV[2])

local _, refusal = read_meta()
if refusal then
    return refusal
end
return tell_untold(id, limit)
