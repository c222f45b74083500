-- include: prefix, now, int, job_record, add_to_wait, emit, in_queue, leave_waiting
-- Parents. `children:<id>` has a field `<queue>:<id>` for each child: `p` pending, `c` and its result, `f` and the
-- error that failed the parent, `i` and an error that did not. The parent's record counts them. A parent that does not
-- run is in `waiting-children` exactly while children are pending, unless one of them let it continue.
local COUNTER = { p = 'children', c = 'completed_children', i = 'ignored_children' }
local PENDING_CHILDREN = '{"kind":"poison","message":"the processor returned while children were pending: '
    .. 'raise WaitingChildrenError to wait for them, or remove_unprocessed_children","details":{}}'

local function count_child(job, from, to)
    if COUNTER[from] then
        job[COUNTER[from]] = job[COUNTER[from]] - 1
    end
    if COUNTER[to] then
        job[COUNTER[to]] = (job[COUNTER[to]] or 0) + 1
    end
end

local function waits_for_children(job)
    return (job.children or 0) > 0 and not job.continued
end

local function park(job)
    job.state = 'waiting-children'
    redis.call('ZADD', prefix .. 'waiting_children', int(now), job.id)
end

-- Instead of going back into the queue. Returns whether. The caller saves the job.
local function wait_for_children(job, prev, fields)
    if not waits_for_children(job) then
        return false
    end
    park(job)
    emit(job, 'waiting-children', ',"prev":"' .. prev .. '","pending":' .. int(job.children) .. (fields or ''))
    return true
end

-- To its old place; a delay of its own counts from here.
local function release_parent(job)
    redis.call('ZREM', prefix .. 'waiting_children', job.id)
    local due_at = job.due_at or job.delay_after and now + job.delay_after
    job.delay_after = nil
    if due_at and due_at > now then
        add_to_delayed(job, due_at)
        emit(job, 'delayed', ',"prev":"waiting-children","due_at":' .. int(due_at))
    else
        add_to_wait(job)
        emit(job, 'waiting', ',"prev":"waiting-children"')
    end
end

local function release_if_ready(job)
    if job.state == 'waiting-children' and not waits_for_children(job) then
        release_parent(job)
    end
end

-- What an attempt of a parent comes to: it cannot complete before its children, nor after one that fails it.
local function outcome_of_parent(job, outcome, content)
    if job.failed_child and outcome ~= 'canceled' then
        return 'child_failed', job.failed_child
    elseif outcome == 'completed' and waits_for_children(job) then
        return 'failed', PENDING_CHILDREN
    end
    return outcome, content
end

-- The parent's record and what it knows of a child; nil when either is gone.
local function load_parent(id, field)
    local known = redis.call('HGET', prefix .. 'children:' .. id, field)
    local job = known and load_job(id)
    if job then
        return job, string.sub(known, 1, 1)
    end
end

-- A child ended. Returns the parent if `blame`, an error, ends it, too: out of its set, not saved.
local function settle_child(id, field, policy, kind, content, blame)
    local job, from = load_parent(id, field)
    if not job then
        return nil
    end
    if kind == 'f' and policy ~= 'fail_parent' then
        kind = policy ~= 'remove' and 'i' or nil
    end
    if kind then
        redis.call('HSET', prefix .. 'children:' .. id, field, kind .. content)
    else
        redis.call('HDEL', prefix .. 'children:' .. id, field)
    end
    count_child(job, from, kind)
    if from == 'p' and not job.finished_at then
        if kind == 'f' and job.state ~= 'active' then
            leave_waiting(job)
            return job
        elseif kind == 'f' then
            job.failed_child = job.failed_child or blame
        elseif kind == 'i' and policy == 'continue_parent' then
            job.continued = '1'
        end
        release_if_ready(job)
    end
    save_job(job)
end

-- A pending child will not end any more, or is no child any more. Returns whether it was one.
local function drop_child(id, field)
    local job, from = load_parent(id, field)
    if from ~= 'p' then
        return false
    end
    redis.call('HDEL', prefix .. 'children:' .. id, field)
    count_child(job, 'p')
    release_if_ready(job)
    save_job(job)
    return true
end

-- A parent that only waits for a worker, or for a pause to end, waits for its children first.
local function hold_back(job)
    if (job.state == 'waiting' or job.state == 'delayed') and waits_for_children(job) then
        leave_place(job)
        wait_for_children(job, job.state)
    end
end

-- A child that ended runs again: its parent waits for it again unless that runs; a finished one may be retried.
local function await_again(id, field)
    local job, from = load_parent(id, field)
    if job and from ~= 'p' and job.state ~= 'active' then
        redis.call('HSET', prefix .. 'children:' .. id, field, 'p')
        count_child(job, from, 'p')
        hold_back(job)
        save_job(job)
    end
end

-- The child's side: calls one of the above in the parent's queue.
local function tell_parent(job, work, ...)
    local parent = options_of(job).pa
    if parent then
        return in_queue(parent[1], work, parent[2], queue_name() .. ':' .. job.id, ...)
    end
end
