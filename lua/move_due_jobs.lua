#!lua flags=allow-oom
-- A duty: delayed jobs that are due become waiting, jobs that had to start by now fail, and schedules make the jobs of
-- their slots; before that, families whose root was canceled are told. Bounded.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   limit  number  jobs of each kind, and a quarter as many schedules
-- Returns
--   how many jobs were moved and schedules run; at least `limit` when more schedules are due, or a family was told
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   added, waiting, failed; of their parents: waiting, delayed, failed; removed (of the queue) where only some are kept
--   canceled, canceling (of families)
--   duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, promote_due, groups, untold
local _, _ = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local root_id = redis.call('HRANDFIELD', prefix .. 'untold')
if root_id then -- also where whoever canceled it is there and tells them
    tell_untold(root_id, TOLD_AT_ONCE)
    return limit
end
if meta.grouped then
    forget_idle_groups()
end
return (promote_due(meta, limit))
