-- include: prefix, int, job_record, emit
local TOLD = {
    'state', 'sequence', 'added', 'token', 'seq', 'run', 'started', 'started_at', 'lease', 'worker', 'made',
    'finished_at', 'result',
}

local function add_values(reply, job, names)
    for i = 1, #names do
        local value = job[names[i]]
        if value ~= nil then
            reply[#reply + 1] = names[i]
            reply[#reply + 1] = type(value) == 'number' and int(value) or value
        end
    end
end

-- What readers get of a job: {id, def, created_at, then name, value, name, value …} of the record.
local function job_reply(job)
    job.created_at, job.added, job.token = birth_of(job)
    local reply = { job.id, def_of(job), int(job.created_at) }
    add_values(reply, job, TOLD)
    if has_rare(job) then
        add_values(reply, job, RARE)
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

-- Where the jobs of a state stand: the waiting ones without a group come before those with one.
local KEYS_OF = { waiting = { 'wait', 'grouped' }, ['waiting-children'] = { 'waiting_children' } }

local function keys_of(state)
    return KEYS_OF[state] or { state }
end

local function size_of(state)
    local size = 0
    for _, key in ipairs(keys_of(state)) do
        size = size + redis.call('ZCARD', prefix .. key)
    end
    return size
end

-- The ids of a state, in BullMQ's order: what comes next first, what finished last first.
local function ids_in(state, start, count)
    local ids = {}
    local has_members = state == 'waiting' or state == 'delayed'
    local is_finished = not has_members and state ~= 'active' and state ~= 'waiting-children'
    for _, key in ipairs(keys_of(state)) do
        if #ids < count then
            local stop = start + count - #ids - 1
            for _, member in ipairs(redis.call(is_finished and 'ZREVRANGE' or 'ZRANGE', prefix .. key, start, stop)) do
                ids[#ids + 1] = has_members and string.sub(member, 18) or member
            end
            start = math.max(start - redis.call('ZCARD', prefix .. key), 0)
        end
    end
    return ids
end

-- The id of the queue's newest event: a watcher that has read this answer goes on after it.
local function last_event_id(meta)
    local newest = redis.call('XREVRANGE', prefix .. 'events', '+', '-', 'COUNT', 1)
    return newest[1] and newest[1][1] or id_before_all(meta)
end
