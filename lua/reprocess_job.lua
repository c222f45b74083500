#!lua flags=allow-oom
-- Retries a finished job by hand: a new run with fresh attempts; the history keeps the old one. The checkpoint of one
-- that did not complete stays: its steps are not done again.
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
--   WRONG_STATE  the job has not finished
-- Events
--   retried; waiting-children (of its parent)
-- include: read_meta, job_answer, retry_job
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
if not job.finished_at then
    return wrong_state(job, 'only a finished job can be retried')
end
retry_job(job)
return answer_job(token, job)
