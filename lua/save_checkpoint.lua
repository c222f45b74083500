#!lua flags=allow-oom
-- Stores how far a running job has come: what its next attempt begins with. Numbered in the series of update_progress.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   id      text
--   lease   text    the token of its claim
--   number  number  within the attempt
--   value   JSON    any
-- Returns
--   "" or the cancel request as JSON
-- Errors
--   LAYOUT_MISMATCH
--   LEASE_LOST   this token does not hold the job any more; nothing was changed
-- Events
--   checkpoint
-- include: read_meta, check_lease, emit
local _, _ = KEYS[1], KEYS[2]
local id, lease, number, value = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local job = check_lease(id, lease)
if not job then
    return redis.error_reply('LEASE_LOST job ' .. id .. ' is not held by this token')
end
if number > (job.reported or 0) then
    job.reported, job.checkpoint = number, value
    emit(job, 'checkpoint', ',"checkpoint":' .. value)
    save_job(job)
end
return job.cancel or ''
