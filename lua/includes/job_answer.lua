-- include: prefix, answer, find_job, read_jobs
-- The answer of a call that changes one job: the job as that call left it, whole. Where the record ended with the job,
-- the answer itself is remembered.
local function answer_job(token, job)
    local reply = job_reply(job)
    local is_kept = has_record(job.id)
    answer(token, is_kept and 'kept' or cjson.encode(reply))
    return reply
end

local function answered_job(token, id)
    local memo = answered(token)
    if not memo then
        return nil
    elseif memo ~= 'kept' then
        return cjson.decode(memo)
    end
    local job, missing = find_job(id)
    return missing or job_reply(job)
end
