#!lua flags=allow-oom
-- A duty: delayed jobs that are due become waiting, and jobs that had to start by now fail. Bounded.
--
-- KEYS
--   meta   hash    the queue's record
--   none   -       never created
-- ARGV
--   limit  number  jobs of each kind
-- Returns
--   how many jobs were moved
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   waiting, failed; of its parent: waiting, delayed, failed; removed (of the queue) where only some are kept
-- include: read_meta, promote_due
local _, _ = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])

local _, refusal = read_meta()
if refusal then
    return refusal
end
return promote_due(limit)
