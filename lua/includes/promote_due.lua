-- include: prefix, now, int, add_to_wait, leave_waiting, emit, finish_job
-- Delayed jobs that are due become waiting; jobs that had to start by now fail.
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

local function promote_due(limit)
    local expired = fail_expired(limit)
    local members = redis.call('ZRANGEBYSCORE', prefix .. 'delayed', '-inf', int(now), 'LIMIT', 0, limit)
    for _, member in ipairs(members) do
        promote_job(load_job(id_of(member)))
    end
    return expired + #members
end

-- Until the next delayed job is due, in ms; nil while there is none.
local function next_due_ms()
    local first = redis.call('ZRANGE', prefix .. 'delayed', 0, 0, 'WITHSCORES')
    if first[2] then
        return math.max(tonumber(first[2]) - now, 0)
    end
end
