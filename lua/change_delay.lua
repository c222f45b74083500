#!lua flags=allow-oom
-- Gives a delayed job another delay, from now.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   token     text    request token
--   id        text
--   delay_ms  number  from now
-- Returns
--   the job as this call left it, as in get_jobs
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job is not delayed
-- Events
--   delayed
-- include: read_meta, job_answer, add_to_wait, emit
local _, _ = KEYS[1], KEYS[2]
local token, id, delay_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

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
if job.state ~= 'delayed' then
    return wrong_state(job, 'only the delay of a delayed job can be changed')
end
redis.call('ZREM', prefix .. 'delayed', wait_member(job))
new_sequence(job)
add_to_delayed(job, now + delay_ms)
emit(job, 'delayed', ',"prev":"delayed","due_at":' .. int(job.due_at))
save_job(job)
return answer_job(token, job)
