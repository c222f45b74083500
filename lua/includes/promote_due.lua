-- include: prefix, now, int, add_to_wait, leave_waiting, emit, finish_job, run_schedules
-- Delayed jobs that are due become waiting; jobs that had to start by now fail; schedules make the jobs
-- of slots that have come.
local WORK_OF_A_SCHEDULE = 4 -- making an iteration takes as long as promoting so many jobs
local TOO_LATE = '{"kind":"expired","message":"the job had not started when its expires_ms ran out"}'

local function promote_job(job)
    redis.call('ZREM', prefix .. 'delayed', wait_member(job))
    new_sequence(job)
    add_to_wait(job)
    emit(job, 'waiting', ',"prev":"delayed"')
    save_job(job)
end

local function fail_expired(limit)
    local ids = redis.call('ZRANGEBYSCORE', prefix .. 'deadlines', '-inf', int(now), 'LIMIT', 0, limit)
    for _, id in ipairs(ids) do
        local job = load_job(id)
        if job and not job.finished_at then -- else it was the parent of one of these
            leave_waiting(job)
            fail_finished(job, 'expired', TOO_LATE)
        end
    end
    return #ids
end

local function promote_delayed(limit)
    local members = redis.call('ZRANGEBYSCORE', prefix .. 'delayed', '-inf', int(now), 'LIMIT', 0, limit)
    for _, member in ipairs(members) do
        promote_job(load_job(id_of(member)))
    end
    return #members
end

-- Returns how many were moved, and whether there were any that have a time.
local function promote_due(meta, limit)
    local moved, are_any = 0, redis.call('EXISTS', prefix .. 'deadlines', prefix .. 'delayed') > 0
    if are_any then
        moved = fail_expired(limit) + promote_delayed(limit)
    end
    if not meta.schedule_at or tonumber(meta.schedule_at) > now then
        return moved, are_any
    end
    local run, more = run_schedules(meta, math.ceil(limit / WORK_OF_A_SCHEDULE))
    return moved + (more and limit or run), true
end

-- Until the next delayed job or schedule is due, or the next held group may start, in ms; nil while there is none.
local function next_due_ms(meta, are_any)
    local first = are_any and redis.call('ZRANGE', prefix .. 'delayed', 0, 0, 'WITHSCORES')[2]
    local at = tonumber(first or NEVER)
    if meta.grouped then
        at = math.min(at, tonumber(redis.call('ZRANGE', prefix .. 'groups:held', 0, 0, 'WITHSCORES')[2] or NEVER))
    end
    at = math.min(at, tonumber(meta.schedule_at or NEVER))
    if at < NEVER then
        return math.max(at - now, 0)
    end
end
