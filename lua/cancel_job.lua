#!lua flags=allow-oom
-- Cancels a job: a waiting one at once; of a running one the worker is told, and only completing comes before it.
-- What is unfinished below it is canceled with it, the first of a large family here, the others by cancel_descendants.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   token   text    request token
--   id      text
--   cancel  JSON    {by, reason}
--   whole   flag    "1" = with its children, and theirs
-- Returns
--   the job as this call left it, as in get_jobs
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
--   WRONG_STATE  the job has finished
-- Events
--   canceled | canceling; of its parent: waiting, delayed, failed; removed (of the queue) where only some are kept
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, job_answer, untold
local _, _ = KEYS[1], KEYS[2]
local token, id, cancel, whole = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

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
if job.finished_at then
    return wrong_state(job, 'only a job that has not finished can be canceled')
end
if whole and job.children then
    list_children(prefix .. 'untold:' .. id, job)
    redis.call('HSET', prefix .. 'untold', id, cancel)
end
cancel_one(job, cancel)
if whole and job.children then
    tell_untold(id, TOLD_AT_ONCE)
    job = not job.is_gone and load_job(id) or job -- its children were counted down in it
end
return answer_job(token, job)
