#!lua flags=allow-oom
-- Makes a delayed job wait no longer; its priority stays.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text
-- Returns
--   the job as this call left it, as in get_jobs
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job is not delayed
-- Events
--   waiting
-- include: read_meta, job_answer, promote_due
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

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
    return wrong_state(job, 'only a delayed job can be promoted')
end
promote_job(job)
return answer_job(token, job)
