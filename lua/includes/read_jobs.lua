-- include: prefix, job_record, emit
-- What readers get of a job: {id, def, created_at, then name, value, name, value …} of the record.
local function job_reply(job)
    header_of(job)
    local reply = { job.id, job.def, int(job.created_at) }
    for name in pairs(FIELD) do
        local value = job.stored[name]
        if value ~= nil then
            reply[#reply + 1] = name
            reply[#reply + 1] = NUMBER[name] and int(value) or value
        end
    end
    return reply
end

-- Records whose retention has ended are left out.
local function job_replies(ids)
    local replies = {}
    for _, id in ipairs(ids) do
        local job = load_job(id)
        if job then
            replies[#replies + 1] = job_reply(job)
        end
    end
    return replies
end

local SET_OF = { waiting = 'wait', ['waiting-children'] = 'waiting_children' } -- else it is called like the state

-- The ids of a state, in BullMQ's order: what comes next first, what finished last first.
local function ids_in(state, start, stop)
    local ids = {}
    if stop < start then
        return ids
    end
    if state == 'waiting' or state == 'delayed' then
        for i, member in ipairs(redis.call('ZRANGE', prefix .. (SET_OF[state] or state), start, stop)) do
            ids[i] = string.sub(member, 18)
        end
    elseif state == 'active' or state == 'waiting-children' then
        ids = redis.call('ZRANGE', prefix .. (SET_OF[state] or state), start, stop)
    else
        ids = redis.call('ZREVRANGE', prefix .. state, start, stop)
    end
    return ids
end

-- The id of the queue's newest event: a watcher that has read this answer goes on after it.
local function last_event_id(meta)
    local newest = redis.call('XREVRANGE', prefix .. 'events', '+', '-', 'COUNT', 1)
    return newest[1] and newest[1][1] or id_before_all(meta)
end
