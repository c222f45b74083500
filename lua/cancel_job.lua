#!lua flags=allow-oom
-- Cancels a job: a waiting one at once; of a running one the worker is told, and only completing comes before it.
--
-- KEYS
--   meta    hash    the queue's record
--   none    -       never created
-- ARGV
--   token   text    request token
--   id      text
--   cancel  JSON    {by, reason}
-- Returns
--   the job as this call left it, as in get_jobs
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job has finished
-- Events
--   canceled | canceling; removed (of the queue) where only some are kept
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, job_answer, promote_due, finish_job, count_up
local _, _ = KEYS[1], KEYS[2]
local token, id, cancel = ARGV[1], ARGV[2], ARGV[3]

local meta, refusal = read_meta()
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
if job.state == 'active' then
    if not job.cancel then
        job.cancel, job.cancel_at = cancel, now
        emit(job, 'canceling', ',"cancel":' .. cancel)
        save_job(job)
        redis.call('PUBLISH', prefix .. 'control', 'cancel ' .. id)
    end
elseif job.state == 'waiting' or job.state == 'delayed' then
    leave_waiting(job)
    job.cancel, job.cancel_at = cancel, now
    cancel_finished(job, '{}')
else
    return wrong_state(job, 'only a job that has not finished can be canceled')
end
flush_counts(meta)
return answer_job(token, job)
