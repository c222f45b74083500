#!lua flags=allow-oom
-- Gives a job that has not finished another priority; a waiting one goes behind those that have it already.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   token     text    request token
--   id        text
--   priority  number  0 to 2097151
-- Returns
--   the job as this call left it, as in get_jobs
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job has finished
-- Events
--   priority
-- include: read_meta, job_answer, add_to_wait, emit
local _, _ = KEYS[1], KEYS[2]
local token, id, priority = ARGV[1], ARGV[2], tonumber(ARGV[3])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered_job(token, id)
if before then
    return before
end
local job, missing = find_job(id)
if missing then
    return missing
end
if job.finished_at then
    return wrong_state(job, 'a finished job has no place in the queue')
end
if job.state == 'waiting' then
    leave_wait(job)
    job.priority = priority
    new_sequence(job)
    add_to_wait(job)
else
    job.priority = priority
end
emit(job, 'priority', ',"priority":' .. int(priority))
save_job(job)
return answer_job(token, job)
