#!lua flags=no-writes
-- Reads why a job waits: what comes before it, what holds it, and how fast the queue moves.
--
-- KEYS
--   meta  string  the queue's record
--   none  -       never created
-- ARGV
--   id    text
-- Returns
--   {name, value, …} or {}: state, group, ahead (jobs before it: exact within its group, between groups an estimate
--   over at most 64 of them), is_estimate, paused, limited_until, maxed, group_place, group_paused,
--   group_limited_until, group_active, due_at, active, recent (of the newest 20 completed), recent_ms (their time)
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int, groups, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local id = ARGV[1]

local MOST_GROUPS = 64
local RECENT = 20

local reply = {}
local function say(name, value)
    if value ~= nil then
        reply[#reply + 1] = name
        reply[#reply + 1] = type(value) == 'number' and int(value) or value
    end
end

-- How many jobs of another group start before virtual time `at`, if each costs `cost`.
local function jobs_before(group, at, cost)
    if held_until(group) or group.tag > at then
        return 0
    end
    local turns = math.floor((at - group.tag) * (group.weight or 1) / cost) + 1
    return math.min(turns, redis.call('ZCARD', prefix .. 'group:' .. group.id))
end

local function say_group(job, gid)
    local group, key = load_group(gid), prefix .. 'group:' .. gid
    local held = held_until(group)
    say('group', gid)
    say('group_place', group.place)
    say('group_active', group.active)
    say('group_paused', group.paused and '1')
    say('group_limited_until', held and held < NEVER and held or nil)
    local rank, cost = redis.call('ZRANK', key, wait_member(job)), cost_of(job)
    local at = math.max(group.tag, virtual_time()) + rank * cost / (group.weight or 1)
    local ahead = redis.call('ZCARD', prefix .. 'wait') + rank
    local others = redis.call('ZRANGE', prefix .. 'groups', 0, MOST_GROUPS - 1)
    for _, other in ipairs(others) do
        if other ~= gid then
            ahead = ahead + jobs_before(load_group(other), at, cost)
        end
    end
    say('ahead', ahead)
    say('is_estimate', #others > 1 and '1' or '0')
end

local function say_pace()
    local ids = redis.call('ZREVRANGE', prefix .. 'completed', 0, RECENT - 1)
    local count, total_ms = 0, 0
    for _, done in ipairs(ids) do
        local job = load_job(done)
        if job and job.started_at then
            count, total_ms = count + 1, total_ms + job.finished_at - job.started_at
        end
    end
    say('recent', count)
    say('recent_ms', total_ms)
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local job = load_job(id)
if not job then
    return {}
end
local active = redis.call('ZCARD', prefix .. 'active')
say('state', job.state)
say('due_at', job.due_at)
say('active', active)
say('paused', meta.paused)
say('limited_until', tonumber(meta.limited_until or 0) > now and meta.limited_until or nil)
say('maxed', meta.concurrency and active >= tonumber(meta.concurrency) and '1' or nil)
if job.state == 'waiting' then
    local gid = group_of(job)
    if gid then
        say_group(job, gid)
    else
        say('ahead', redis.call('ZRANK', prefix .. 'wait', wait_member(job)))
        say('is_estimate', '0')
    end
    say_pace()
end
return reply
