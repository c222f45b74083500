-- include: prefix, now, int, job_record, emit, end_record, free_key, trim_state, count_up
-- The end of a run: one terminal event, then the job is kept as long as its options say.
local MAX_EVENT_RESULT = 2048
local RESULT_MS = 60000

local function kept_by(rule, state)
    if state == 'completed' then
        return rule.ca, rule.cc
    end
    return rule.fa, rule.fc
end

-- The job's own rule, else that of the worker whose attempt it was; a count of -1 says: keep all.
local function keep_rule(job)
    local age_s, count = kept_by(header_of(job), job.state)
    if job.worker_keep and not age_s and not count then
        age_s, count = kept_by(job.worker_keep, job.state)
    end
    return age_s, count ~= -1 and count or nil
end

local function expire_record(job)
    local at = int(job.expires_at)
    redis.call('ZADD', prefix .. 'expires:' .. job.state, at, job.id)
    local files = files_of(job)
    if files then
        redis.call('ZADD', prefix .. 'sweep', at, files)
    end
    save_job(job)
    for _, kind in ipairs({ 'job:', 'state:', 'log:', 'lines:' }) do
        redis.call('PEXPIREAT', prefix .. kind .. job.id, at)
    end
    redis.call('PEXPIREAT', prefix .. 'preview:' .. job.id, at, 'LT')
    if job.expires_at - now < TOMBSTONE_MS then -- the record may be gone before the call that added it is sent again
        set_tombstone(job, job.expires_at)
    end
end

local function finish_job(job, state, fields)
    job.state, job.finished_at = state, now
    count_up(state)
    if state == 'failed' and job.reason ~= 'expired' then
        redis.call('ZADD', prefix .. 'dead', int(now), job.id)
    end
    if job.result and #job.result > MAX_EVENT_RESULT then
        fields = fields .. ',"result_bytes":' .. int(#job.result)
    elseif job.result then
        fields = fields .. ',"result":' .. job.result
    end
    local age_s, count = keep_rule(job)
    if age_s then
        job.expires_at = now + age_s * 1000
        fields = fields .. ',"expires_at":' .. int(job.expires_at)
    end
    emit(job, state, fields)
    if header_of(job).dd then
        free_key(job)
    end
    if count == 0 or age_s == 0 then
        redis.call('ZREM', prefix .. 'dead', job.id)
        end_record(job)
        if job.result and #job.result > MAX_EVENT_RESULT then
            redis.call('SET', prefix .. 'result:' .. job.id, job.result, 'PX', RESULT_MS)
        end
        return
    end
    redis.call('ZADD', prefix .. state, int(now), job.id)
    if age_s then
        expire_record(job)
    else
        save_job(job)
    end
    if count then
        trim_to_count(state, count)
    end
end

local function cancel_finished(job, details)
    job.error, job.reason, job.stack = nil, nil, nil
    finish_job(job, 'canceled', ',"cancel":' .. job.cancel .. ',"details":' .. details)
end

local function fail_finished(job, reason, error_json, stack)
    job.reason, job.error, job.stack = reason, error_json, stack
    finish_job(job, 'failed', ',"reason":"' .. reason .. '","error":' .. error_json
        .. ',"attempts_made":' .. int(job.made or 0) .. ',"attempts":' .. int(header_of(job).a or 1))
end
