-- include: prefix, now, int, check_lease, leave_active, add_to_wait, emit, finish_job, limit_starts, count_up
-- include: children
-- How an attempt ended: one small function for each outcome, all called as (job, content, pause_ms). What would go
-- back into the queue waits for pending children first.
local NOT_COUNTED = {
    returned = true, waiting = true, delayed = true, rate_limited = true, ['waiting-children'] = true,
}

local function step_completed(job, content)
    job.result, job.error, job.stack = content, nil, nil
    finish_job(job, 'completed')
end

local function step_canceled(job, content)
    job.cancel = job.cancel or '{"by":"worker","reason":""}'
    cancel_finished(job, content)
end

-- Back to its old place: a worker that stops gives it back, or the processor asked for that.
local function step_returned(job)
    if not wait_for_children(job, 'active') then
        add_to_wait(job)
        emit(job, 'waiting', ',"prev":"active"')
    end
    save_job(job)
end

-- The processor waits for its children, also where one had let it go on.
local function step_waiting_children(job)
    job.continued = nil
    step_returned(job)
end

local function step_delayed(job, _, pause_ms)
    job.due_at = now + pause_ms -- nor does it go on before that when its children have ended
    if not wait_for_children(job, 'active') then
        add_to_delayed(job, job.due_at)
        emit(job, 'delayed', ',"prev":"active","due_at":' .. int(job.due_at))
    end
    save_job(job)
end

local function step_child_failed(job, error_json)
    fail_finished(job, 'child', error_json)
end

local function retry_later(job, error_json, pause_ms)
    count_up('retried')
    new_sequence(job)
    job.due_at = pause_ms > 0 and now + pause_ms or nil
    if wait_for_children(job, 'active', ',"error":' .. error_json) then
        save_job(job) -- and not before its pause is over
        return
    end
    if pause_ms > 0 then
        add_to_delayed(job, job.due_at)
        emit(job, 'delayed', ',"prev":"active","due_at":' .. int(job.due_at) .. ',"error":' .. error_json)
    else
        add_to_wait(job)
        emit(job, 'waiting', ',"prev":"active","error":' .. error_json)
    end
    save_job(job)
end

-- `content` is the error, and where there is one, a newline and the stack: kept in the record, in no event.
local function step_failed(job, content, pause_ms)
    local line = string.find(content, '\n', 1, true)
    local error_json = line and string.sub(content, 1, line - 1) or content
    local stack = line and string.sub(content, line + 1) or nil
    if pause_ms >= 0 and job.made < (header_of(job).a or 1) then
        job.error, job.stack = error_json, stack
        retry_later(job, error_json, pause_ms)
    else
        fail_finished(job, cjson.decode(error_json).kind == 'timeout' and 'timeout' or 'error', error_json, stack)
    end
end

local OUTCOMES = {
    completed = step_completed,
    failed = step_failed,
    canceled = step_canceled,
    returned = step_returned,
    waiting = step_returned,
    delayed = step_delayed,
    rate_limited = step_returned,
    ['waiting-children'] = step_waiting_children,
    child_failed = step_child_failed,
}

-- Returns the job's new state. A canceled job ends as canceled whatever its attempt came to, except a completion; one
-- whose child failed it fails. In both cases a rate limit still holds for the others.
-- `keep`: the worker's rule for jobs without one, or nil.
local function finish_attempt(meta, keep, id, lease, outcome, content, pause_ms)
    local job = check_lease(id, lease)
    if not job then
        return 'LEASE_LOST'
    end
    leave_active(job)
    job.worker_keep = keep
    if not NOT_COUNTED[outcome] then
        job.made = (job.made or 0) + 1
        count_up('run_ms', math.max(now - job.started_at, 0))
    end
    if outcome == 'rate_limited' then -- before the job is back at its place
        limit_starts(meta, pause_ms)
    end
    if job.failed_child or job.children then
        outcome, content = outcome_of_parent(job, outcome, content)
    end
    if job.cancel and outcome ~= 'completed' then
        cancel_finished(job, outcome == 'canceled' and content or '{}')
    else
        OUTCOMES[outcome](job, content, pause_ms)
    end
    return job.state
end
