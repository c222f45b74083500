#!lua flags=allow-oom
-- Renews the leases of a worker's running jobs. Accepted at any age while the job is still held.
--
-- KEYS
--   meta       string  the queue's record
--   none       -       never created
-- ARGV
--   lease_ms   number  from now
--   cancel_ms  number  a job canceled longer ago than this is not renewed any more
--   then two for each job:
--   id         text
--   lease      text    the token of its claim
-- Returns
--   for each job: "" (renewed), LEASE_LOST, or the cancel request as JSON (renewed, but it should stop)
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, check_lease, int
local _, _ = KEYS[1], KEYS[2]
local lease_ms, cancel_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local replies = {}
for i = 3, #ARGV, 2 do
    local job = check_lease(ARGV[i], ARGV[i + 1])
    if not job or (job.cancel and now - job.cancel_at > cancel_ms) then
        replies[#replies + 1] = 'LEASE_LOST'
    else
        redis.call('ZADD', prefix .. 'active', 'XX', int(now + lease_ms), job.id)
        replies[#replies + 1] = job.cancel or ''
    end
end
return replies
