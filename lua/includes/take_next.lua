-- include: prefix, now, int, job_record, emit, add_to_wait, promote_due, recover_stalled, start_limit, groups, choose
-- include: count_start, gather
-- Claims up to `slots` jobs for a worker, in the order that the design's page decides: jobs without a group by
-- priority, then the groups by virtual time. A worker with wishes (warm keys, batches) chooses among those whose turn
-- is near.
local DUE_AT_ONCE = 32
local STALLED_AT_ONCE = 8

local function read_wishes(text)
    return text == '' and {} or cjson.decode(text)
end

-- One text, since each part of an answer costs a server some 3,000 instructions; of what most jobs have alike, nothing.
local function claim_reply(job)
    local head = packed_created_at(job) .. job.id .. ' ' .. job.lease .. ' ' .. int(job.started_at)
    if job.run > 1 or job.started > 1 or job.made or job.stalled or job.priority then
        head = table.concat({ head, int(job.run), int(job.started), int(job.made or 0), int(job.stalled or 0),
            int(priority_of(job)) }, ' ')
    end
    if job.cancel or job.error or job.checkpoint then
        head = head .. '\n' .. (job.cancel or '') .. '\n' .. (job.error or '') .. '\n' .. (job.checkpoint or '')
    end
    return head, def_of(job)
end

local function start_job(job, lease, worker, lease_ms)
    if job.started == nil and options_of(job).x then
        redis.call('ZREM', prefix .. 'deadlines', job.id)
    end
    job.state, job.lease, job.worker = 'active', lease, worker
    job.started, job.started_at, job.progress = (job.started or 0) + 1, now, nil
    job.preview, job.passed_at = nil, nil
    enter_set('active', now + lease_ms, job.id)
    local gid = queue_meta().grouped and group_of(job)
    if gid then
        charge(load_group(gid), job)
    end
    count_start(job)
    emit_start(job)
    save_later(job, job.is_bare)
end

local function pop_from(key, count)
    settle_set(key)
    local popped, ids = redis.call('ZPOPMIN', prefix .. key, count), {}
    for i = 1, #popped, 2 do
        ids[#ids + 1] = id_of(popped[i])
    end
    local jobs = load_whole_jobs(ids)
    for i = 1, #jobs do
        local job = jobs[i]
        if job.batch_key then
            redis.call('ZREM', prefix .. 'batch:' .. job.batch_key, wait_member(job))
        end
    end
    return jobs
end

-- The next jobs in order. Returns whether more groups are to be looked at.
local function take_in_order(meta, count, start)
    local jobs = pop_from('wait', count)
    for i = 1, #jobs do
        start(jobs[i])
    end
    for _ = #jobs + 1, meta.grouped and count or 0 do
        local group, more = next_group()
        if not group then
            return more
        end
        local job = pop_from('group:' .. group.id, 1)[1]
        redis.call('ZREM', prefix .. 'grouped', wait_member(job))
        start(job)
    end
    return false
end

-- Those of the batch that are next; where some of them are in groups that may not start, those whose turn is near.
local function fill_batch(job, places, start)
    for _, find in ipairs({ batch_members, near_members }) do
        for _, id in ipairs(find(job, places)) do
            local other = load_job(id)
            if places > 0 and may_start(other) then
                leave_wait(other)
                start(other)
                places = places - 1
            end
        end
    end
end

-- The next jobs by what the worker wishes. Returns in how many ms a batch is ready that now is too small.
local function take_by_wish(count, wishes, start)
    local ready_ms
    for _ = 1, count do
        local job, linger_ms = choose(wishes)
        ready_ms = linger_ms
        if not job then
            break
        end
        leave_wait(job)
        start(job)
        if wishes.batch then
            fill_batch(job, count - 1, start)
            break -- one batch a call
        end
    end
    return ready_ms
end

-- Wakes the next worker while there is work. One question for both: of two keys that are there the marker is one, and
-- where it alone is there, it is set to what it is.
local function pass_on_wake_up(meta)
    settle_set('wait')
    local there = redis.call('EXISTS', prefix .. 'marker', prefix .. 'wait')
    if there == 1 or there == 0 and meta.grouped and redis.call('EXISTS', prefix .. 'groups') == 1 then
        wake_worker()
    end
end

-- Returns the claims, for how many ms a worker may sleep at most (-1: until it is woken), and whether waking it before
-- is of no use.
local function take_next(meta, token, worker, lease_ms, slots, interval_ms, wishes)
    recover_stalled(meta, lease_ms, interval_ms, STALLED_AT_ONCE)
    local _, are_any_due = promote_due(meta, DUE_AT_ONCE)
    local allowed, limited_ms, is_own_limit = allowance(meta, slots, worker, wishes.limiter)
    local claims, more, ready_ms = {}, false, nil
    local function start(job)
        start_job(job, token .. '.' .. int(#claims + 1), worker, lease_ms)
        claims[#claims + 1] = job
    end
    if meta.grouped then
        settle_held() -- also where nothing may start: groups that are due would send the worker back at once, for ever
    end
    if allowed > 0 then
        if wishes.batch or wishes.warm then
            ready_ms = take_by_wish(allowed, wishes, start)
        else
            more = take_in_order(meta, allowed, start)
        end
        count_starts(meta, #claims, worker, wishes.limiter)
    end
    local sleep_ms = more and 0 or limited_ms or math.min(ready_ms or NEVER, next_due_ms(meta, are_any_due) or NEVER)
    -- One wake-up leads to the next while work can start; a full or limited queue wakes nobody.
    local may_wake = is_own_limit or not limited_ms and (#claims > 0 or slots == 0 or leaves_wake_up(worker, ready_ms))
    local is_for_others = slots == 0 and meta.grouped and sleep_ms < NEVER -- a group may be held by another limit now
    if may_wake and is_for_others then
        wake_worker()
    elseif may_wake then
        pass_on_wake_up(meta)
    end
    return claims, sleep_ms == NEVER and -1 or sleep_ms, is_own_limit
end
