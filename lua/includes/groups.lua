-- include: prefix, now, int, read_meta, job_record, windows
-- Fair sharing between groups, by virtual time (start-time fair queueing: Goyal, Vin, Cheng 1996).
-- A group's tag is the virtual time at which its next job starts. The queue's virtual time is the tag of the group that
-- was served last, and never goes back. A claim moves the group's tag on by cost / weight, and the end of the attempt
-- corrects that by the time it took. A group that enters the ring starts at the virtual time or its own tag, whichever
-- is later: idling earns no credit, and leaving pays no debt.
--
-- A group with waiting jobs stands in the ring, or among the held ones while it may not start; else it is idle.
local MOST_CORRECTION = 4
local GRAIN_MS = 50 -- what takes less says nothing about a job's cost
local HELD_AT_ONCE = 16
local IDLE_MS = 3600000
local PLACES = { ring = 'groups', held = 'groups:held', idle = 'groups:idle' }
local GROUP_TEXT = { place = true, paused = true }

local known_groups = {}

local function load_group(gid)
    local key = prefix .. 'ginfo:' .. gid
    local group = known_groups[key]
    if not group then
        group = { id = gid, tag = 0, active = 0 }
        local flat = redis.call('HGETALL', key)
        for i = 1, #flat, 2 do
            group[flat[i]] = GROUP_TEXT[flat[i]] and flat[i + 1] or tonumber(flat[i + 1])
        end
        known_groups[key] = group
    end
    return group
end

local function exact(number)
    return string.format('%.17g', number)
end

-- A group's own limit, else what the queue allows each of its groups; 0 = none.
local function group_limit(group, name)
    local limit = group[name] or tonumber(queue_meta()['group_' .. name] or 0)
    return limit > 0 and limit or nil
end

local function virtual_time()
    return tonumber(queue_meta().vtime or 0)
end

-- Until when the group may not start a job, in ms; nil when it may.
local function held_until(group)
    if group.paused then
        return NEVER
    end
    if (group.limited_until or 0) > now then
        return group.limited_until
    end
    local concurrency, rate_max = group_limit(group, 'concurrency'), group_limit(group, 'rate_max')
    if concurrency and group.active >= concurrency then
        return NEVER
    end
    if rate_max then
        local _, limited_ms = window_allows('grate:' .. group.id, rate_max, group_limit(group, 'rate_ms'), 1)
        return limited_ms and now + limited_ms
    end
end

-- Puts the group where it belongs now.
local function settle(group)
    local place, score = 'idle', int(now)
    if redis.call('EXISTS', prefix .. 'group:' .. group.id) == 1 then
        local held = held_until(group)
        if held then
            place, score = 'held', int(held)
        else
            if group.place ~= 'ring' then
                group.tag = math.max(group.tag, virtual_time())
            end
            place, score = 'ring', exact(group.tag)
        end
    end
    if group.place and group.place ~= place then
        redis.call('ZREM', prefix .. PLACES[group.place], group.id)
    end
    redis.call('ZADD', prefix .. PLACES[place], score, group.id)
    group.place = place
    redis.call('HSET', prefix .. 'ginfo:' .. group.id, 'place', place, 'tag', exact(group.tag),
        'active', int(group.active))
end

local function settle_held()
    local due = redis.call('ZRANGEBYSCORE', prefix .. 'groups:held', '-inf', int(now), 'LIMIT', 0, HELD_AT_ONCE)
    for _, gid in ipairs(due) do
        settle(load_group(gid))
    end
end

-- The group whose turn it is. Returns nil when none may start, and whether there are more to be looked at.
local function next_group()
    for _ = 1, HELD_AT_ONCE do
        local head = redis.call('ZRANGE', prefix .. 'groups', 0, 0)
        if not head[1] then
            return nil, false
        end
        local group = load_group(head[1])
        if not held_until(group) then
            return group, false
        end
        settle(group)
    end
    return nil, redis.call('EXISTS', prefix .. 'groups') == 1
end

local function cost_of(job)
    return header_of(job).co or 1
end

-- A job of the group starts.
local function charge(group, job)
    if group.tag > virtual_time() then
        set_meta('vtime', exact(group.tag))
    end
    group.tag = math.max(group.tag, virtual_time()) + cost_of(job) / (group.weight or 1)
    group.active = group.active + 1
    local rate_max = group_limit(group, 'rate_max')
    if rate_max then
        count_in_window('grate:' .. group.id, rate_max, group_limit(group, 'rate_ms'), 1)
    end
    settle(group)
end

-- Charges what the attempt took instead of what was expected, compared with what a unit of cost usually takes here.
local function correct(group, job)
    local meta, cost = queue_meta(), cost_of(job)
    local took_ms = math.max(now - job.started_at, 0)
    local pace = tonumber(meta.pace or took_ms / cost)
    if math.max(took_ms, pace * cost) < GRAIN_MS then
        return
    end
    local measured = math.max(math.min(took_ms / pace, cost * MOST_CORRECTION), cost / MOST_CORRECTION)
    group.tag = math.max(group.tag + (measured - cost) / (group.weight or 1), virtual_time())
    set_meta('pace', exact(0.9 * pace + 0.1 * took_ms / cost))
end

-- An attempt at a job of the group has ended.
local function leave_group_active(job)
    local gid = group_of(job)
    if gid then
        local group = load_group(gid)
        group.active = math.max(group.active - 1, 0)
        correct(group, job)
        settle(group)
    end
end

-- Inside a group an aged job's score is its priority in steps of `ageing`, from the time when it came: each step it
-- waits is worth one priority.
local function group_score(group, job)
    if (group.ageing or 0) > 0 then
        return priority_of(job) * group.ageing + job.entered_at
    end
    return priority_of(job)
end

-- From now on the scripts have to look at groups.
local function note_groups()
    if not queue_meta().grouped then
        set_meta('grouped', '1')
    end
end

local function enter_group(job, gid, member)
    local meta, group = queue_meta(), load_group(gid)
    local is_new = group.place == nil or group.place == 'idle'
    if is_new then
        local ageing = tonumber(meta.ageing_ms or 0)
        if ageing ~= (group.ageing or 0) then
            group.ageing = ageing
            redis.call('HSET', prefix .. 'ginfo:' .. gid, 'ageing', int(ageing))
        end
    end
    redis.call('ZADD', prefix .. 'group:' .. gid, int(group_score(group, job)), member)
    redis.call('ZADD', prefix .. 'grouped', int(priority_of(job)), member)
    note_groups()
    if is_new then
        settle(group)
    end
end

local function leave_group(gid, member)
    redis.call('ZREM', prefix .. 'grouped', member)
    if redis.call('ZREM', prefix .. 'group:' .. gid, member) == 1 then
        local group = load_group(gid)
        if redis.call('EXISTS', prefix .. 'group:' .. gid) == 0 then
            settle(group)
        end
    end
end

local function is_configured(group)
    return group.weight or group.concurrency or group.rate_max or group.max_waiting or group.paused
        or (group.limited_until or 0) > now
end

-- Forgets groups that have been idle for an hour; those with settings of their own stay.
local function forget_idle_groups()
    local before = int(now - IDLE_MS)
    local idle = redis.call('ZRANGEBYSCORE', prefix .. 'groups:idle', '-inf', before, 'LIMIT', 0, HELD_AT_ONCE)
    for _, gid in ipairs(idle) do
        local group = load_group(gid)
        if is_configured(group) or group.active > 0 then
            redis.call('ZADD', prefix .. 'groups:idle', int(now), gid)
        else
            redis.call('ZREM', prefix .. 'groups:idle', gid)
            redis.call('DEL', prefix .. 'ginfo:' .. gid)
            known_groups[prefix .. 'ginfo:' .. gid] = nil
        end
    end
end
