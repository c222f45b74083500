#!lua flags=allow-oom
-- Cancels a job: a waiting one at once; of a running one the worker is told, and only completing comes before it.
-- What is unfinished below it is canceled with it.
--
-- KEYS
--   meta    hash    the queue's record
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
--   WRONG_STATE   the job has finished
--   FLOW_REFUSED  too many jobs are below it
-- Events
--   canceled | canceling; of its parent: waiting, delayed, failed; removed (of the queue) where only some are kept
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, job_answer, leave_waiting, finish_job, descendants
local _, _ = KEYS[1], KEYS[2]
local token, id, cancel, whole = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local function cancel_one(job)
    if job.state ~= 'active' then
        leave_waiting(job)
        job.cancel, job.cancel_at = cancel, now
        cancel_finished(job, '{}')
    elseif not job.cancel then
        job.cancel, job.cancel_at = cancel, now
        emit(job, 'canceling', ',"cancel":' .. cancel)
        save_job(job)
        redis.call('PUBLISH', prefix .. 'control', 'cancel ' .. job.id)
    end
end

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
local family = {}
if whole then
    family = descendants(job, MAX_TREE)
end
if not family then
    return too_many(job)
end
cancel_one(job) -- parents before children: what those come to changes a canceled parent no more
for _, member in ipairs(family) do
    if not member.job.finished_at then
        in_queue(member.queue, cancel_one, member.job)
    end
end
if #family > 0 and not job.is_gone then
    job = load_job(id) or job -- its children were counted down in it
end
return answer_job(token, job)
