#!lua flags=allow-oom
-- Records what a running attempt reports: progress, or a milestone, with a preview picture if there is one.
--
-- KEYS
--   meta        string  the queue's record
--   none        -       never created
-- ARGV
--   id          text
--   lease       text    the token of its claim
--   number      number  1, 2, 3 … within the attempt; one not above the last is a repeat and changes nothing
--   name        text    "" = progress, else the milestone's name
--   content     JSON    any
--   preview     bytes   "" = none
--   preview_ms  number  how long the preview is kept
-- Returns
--   "" or the cancel request as JSON
-- Errors
--   LAYOUT_MISMATCH
--   LEASE_LOST   this token does not hold the job any more; nothing was changed
-- Events
--   progress | milestone
-- include: read_meta, check_lease, emit
local _, _ = KEYS[1], KEYS[2]
local id, lease, number, name = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local content, preview, preview_ms = ARGV[5], ARGV[6], ARGV[7]

-- The history of an attempt is bounded: a worker of ours thins progress long before, see orchestrator.active_job.
local MAX_REPORTS = 2000

local _, refusal = read_meta()
if refusal then
    return refusal
end
local job = check_lease(id, lease)
if not job then
    return redis.error_reply('LEASE_LOST job ' .. id .. ' is not held by this token')
end
if number <= (job.reported or 0) then
    return job.cancel or ''
end
job.reported = number
if preview ~= '' then
    redis.call('SET', prefix .. 'preview:' .. id, preview, 'PX', preview_ms)
end
if name == '' then
    job.progress = content
elseif preview ~= '' then
    job.preview = content
end
if name ~= '' then
    emit(job, 'milestone', ',"name":' .. cjson.encode(name) .. ',"data":' .. content)
elseif number <= MAX_REPORTS then
    emit(job, 'progress', ',"progress":' .. content)
end
save_job(job)
return job.cancel or ''
