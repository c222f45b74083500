#!lua flags=allow-oom
-- Retries a finished job by hand: a new run with fresh attempts; the history keeps the old one.
--
-- KEYS
--   meta   hash    the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text
-- Returns
--   the job's state after the call
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job has not finished
-- Events
--   retried
-- include: read_meta, answer, find_job, add_to_wait, emit, end_record, children
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local job, missing = find_job(id)
if missing then
    return missing
end
if not job.finished_at then
    return wrong_state(job, 'only a finished job can be retried')
end

local files = files_of(job)
if files then
    redis.call('ZADD', prefix .. 'sweep', int(now), files)
end
leave_state(id, job.state)
for _, kind in ipairs({ 'job:', 'state:', 'log:', 'lines:' }) do
    redis.call('PERSIST', prefix .. kind .. id)
end
if job.children then
    redis.call('PERSIST', prefix .. 'children:' .. id)
end
local prev = job.state
job.run = job.run + 1
for _, name in ipairs({ 'started', 'made', 'stalled', 'lease', 'worker', 'started_at', 'finished_at', 'expires_at',
    'progress', 'preview', 'cancel', 'cancel_at', 'reason', 'error', 'result',
    'failed_child', 'continued', 'delay_after' }) do
    job[name] = nil
end
new_sequence(job)
if waits_for_children(job) then
    park(job)
else
    add_to_wait(job)
end
emit(job, 'retried', ',"prev":"' .. prev .. '","state":"' .. job.state .. '"')
save_job(job)
tell_parent(job, await_again)
return answer(token, job.state)
