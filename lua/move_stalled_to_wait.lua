#!lua flags=allow-oom
-- A duty: jobs whose lease ran out go back to their place in the queue, or fail. Bounded.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   lease_ms     number  the workers' lease, for the grace after a gap
--   interval_ms  number  how often the duty runs
--   limit        number  jobs
-- Returns
--   how many jobs were recovered
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   stalled, waiting, waiting-children, failed, canceled; of its parent: waiting, delayed, failed;
--   removed (of the queue) where only some are kept
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, recover_stalled
local _, _ = KEYS[1], KEYS[2]
local lease_ms, interval_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
if meta.epoch == 0 then
    return 0
end
local recovered = recover_stalled(meta, lease_ms, interval_ms, limit)
return recovered
