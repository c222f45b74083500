#!lua flags=allow-oom
-- Adds a line to the job's own log. Numbered like update_progress, in the same series.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   id      text
--   lease   text    the token of its claim
--   number  number  within the attempt
--   line    text
-- Returns
--   "" or the cancel request as JSON
-- Errors
--   LAYOUT_MISMATCH
--   LEASE_LOST   this token does not hold the job any more; nothing was changed
-- Events
--   none
-- include: read_meta, check_lease
local _, _ = KEYS[1], KEYS[2]
local id, lease, number, line = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local job = check_lease(id, lease)
if not job then
    return redis.error_reply('LEASE_LOST job ' .. id .. ' is not held by this token')
end
if number > (job.reported or 0) then
    job.reported = number
    local keep = header_of(job).k or 1000
    if keep > 0 then
        redis.call('RPUSH', prefix .. 'lines:' .. id, line)
        redis.call('LTRIM', prefix .. 'lines:' .. id, -keep, -1)
    end
    save_job(job)
end
return job.cancel or ''
