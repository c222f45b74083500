-- include: prefix, now, int, job_record, emit, end_record, free_key, trim_state, count_up, children, gather
-- The end of a run: one terminal event, then the job is kept as long as its options say. It may be the end of its
-- parent, too.
local RESULT_MS = 60000
local MAX_COPIED_RESULT = 65536

local function kept_by(rule, state)
    if state == 'completed' then
        return rule.ca, rule.cc
    end
    return rule.fa, rule.fc
end

-- The job's own rule, else that of the worker whose attempt it was; a count of -1 says: keep all.
local function keep_rule(job)
    local age_s, count = kept_by(options_of(job), job.state)
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
    if job.children then
        redis.call('PEXPIREAT', prefix .. 'children:' .. job.id, at)
    end
    if job.expires_at - now < TOMBSTONE_MS then -- the record may be gone before the call that added it is sent again
        set_tombstone(job, job.expires_at)
    end
end

-- `fields`: of the event of one that was canceled; those of others are told from the record.
local function end_run(job, state, fields)
    job.state, job.finished_at = state, now
    count_up(state)
    if state == 'failed' and job.reason ~= 'expired' then
        redis.call('ZADD', prefix .. 'dead', int(now), job.id)
    end
    local age_s, count = keep_rule(job)
    if age_s then
        job.expires_at = now + age_s * 1000
    end
    if fields then
        emit(job, state, job.expires_at and fields .. ',"expires_at":' .. int(job.expires_at) or fields)
    else
        emit_end(job)
    end
    if options_of(job).dd then
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
    enter_set(state, now, job.id)
    if age_s then
        expire_record(job)
    else
        save_later(job, job.is_bare and state == 'completed')
    end
    if count then
        trim_to_count(state, count)
    end
end

-- What a parent gets of its child: the result, unless it is long and can be read of the child; or why there is none.
local function legacy_of(job)
    if job.state == 'completed' then
        local is_long = #job.result > MAX_COPIED_RESULT and has_record(job.id)
        return 'c', is_long and '' or job.result
    elseif job.state == 'failed' then
        return 'f', job.error
    end
    local reason = cjson.decode(job.cancel).reason or ''
    local message = reason ~= '' and 'canceled: ' .. reason or 'canceled'
    return 'f', '{"kind":"canceled","message":' .. cjson.encode(message) .. ',"details":{}}'
end

-- The error of everybody who waited for this job, up to the root: all name the job where it began.
local function blame_of(job, error_json)
    if job.reason == 'child' then
        return error_json
    end
    local problem = cjson.decode(error_json)
    local message = 'job ' .. job.id .. ' of queue ' .. queue_name() .. ' ended without a result: ' .. problem.message
    return '{"kind":' .. cjson.encode(problem.kind) .. ',"message":' .. cjson.encode(message)
        .. ',"details":{"queue":"' .. queue_name() .. '","job":"' .. job.id .. '"}}'
end

local function note_failure(job, reason, error_json, stack)
    job.reason, job.error, job.stack = reason, error_json, stack
end

-- Upwards as long as each end is that of the parent, too; adding allows no more than MAX_DEPTH levels.
local function finish_job(job, state, fields)
    local home = prefix
    end_run(job, state, fields)
    while options_of(job).pa do
        local kind, content = legacy_of(job)
        local policy = job.header.of or 'fail_parent'
        local blame = kind == 'f' and policy == 'fail_parent' and blame_of(job, content) or nil
        local parent = tell_parent(job, settle_child, policy, kind, content, blame)
        if not parent then
            break
        end
        enter_queue(job.header.pa[1])
        job = parent
        note_failure(job, 'child', blame)
        end_run(job, 'failed')
    end
    prefix = home
end

local function cancel_finished(job, details)
    job.error, job.reason, job.stack = nil, nil, nil
    finish_job(job, 'canceled', ',"cancel":' .. job.cancel .. ',"details":' .. details)
end

local function fail_finished(job, reason, error_json, stack)
    note_failure(job, reason, error_json, stack)
    finish_job(job, 'failed')
end
