-- include: job_record
-- The job, or nil and the error to answer with.
local function find_job(id)
    local job = load_job(id)
    if not job then
        return nil, redis.error_reply('JOB_NOT_FOUND there is no job ' .. id)
    end
    return job, nil
end

local function wrong_state(job, wish)
    return redis.error_reply('WRONG_STATE job ' .. job.id .. ' is ' .. job.state .. '; ' .. wish)
end
