-- include: prefix, now, int, read_meta
-- A schedule: its record (all but the template), its place among the others, and whether it needs slots.
-- `at` is its next slot, `anchor` the first one of an `every_ms`; `slots` are those that are known of a cron, the first
-- being `at`; `known_to` says how far; `dry` = none comes after them; `finished` = no iteration comes any more.
local FEW_SLOTS = 8
local SCHEDULE_FIELDS = {
    'every_ms', 'cron', 'tz', 'start_at', 'end_at', 'limit', 'anchor', 'at', 'made', 'skipped', 'last',
    'version', 'slots', 'known_to', 'dry', 'finished',
}
local SCHEDULE_TEXT = {
    cron = true, tz = true, last = true, version = true, slots = true, dry = true, finished = true,
}

local function split_slots(text)
    local slots = {}
    for slot in string.gmatch(text or '', '%d+') do
        slots[#slots + 1] = tonumber(slot)
    end
    return slots
end

local function join_slots(slots)
    local texts = {}
    for i, slot in ipairs(slots) do
        texts[i] = int(slot)
    end
    return #texts > 0 and table.concat(texts, ',') or nil
end

local function load_schedule(id)
    local values = redis.call('HMGET', prefix .. 'schedule:' .. id, unpack(SCHEDULE_FIELDS))
    local schedule, stored = { id = id }, {}
    for i, name in ipairs(SCHEDULE_FIELDS) do
        if values[i] then
            stored[name] = values[i]
            schedule[name] = SCHEDULE_TEXT[name] and values[i] or tonumber(values[i])
        end
    end
    if not schedule.version then
        return nil
    end
    schedule.slots, schedule.stored = split_slots(schedule.slots), stored
    return schedule
end

local function stored_form(schedule, name)
    local value = schedule[name]
    if name == 'slots' then
        return join_slots(value)
    end
    return value and (SCHEDULE_TEXT[name] and value or int(value))
end

local function write_schedule(schedule)
    local key, changed, gone = prefix .. 'schedule:' .. schedule.id, {}, {}
    for _, name in ipairs(SCHEDULE_FIELDS) do
        local value = stored_form(schedule, name)
        if value == nil and schedule.stored[name] then
            gone[#gone + 1] = name
        elseif value ~= schedule.stored[name] then
            changed[#changed + 1] = name
            changed[#changed + 1] = value
        end
        schedule.stored[name] = value
    end
    if #changed > 0 then
        redis.call('HSET', key, unpack(changed))
    end
    if #gone > 0 then
        redis.call('HDEL', key, unpack(gone))
    end
end

-- After this nothing more happens in a schedule whose limit or end is reached.
local function finish_if_over(schedule)
    local at = schedule.at
    local is_over = schedule.limit and schedule.made >= schedule.limit
        or at and schedule.end_at and at > schedule.end_at
        or not at and (schedule.dry or schedule.every_ms)
    if is_over then
        schedule.finished, schedule.at, schedule.slots = '1', nil, {}
    end
end

local function save_schedule(schedule)
    finish_if_over(schedule)
    redis.call('ZADD', prefix .. 'schedules', int(schedule.at or NEVER), schedule.id)
    if schedule.cron then
        if schedule.finished or schedule.dry or #schedule.slots >= FEW_SLOTS then
            redis.call('ZREM', prefix .. 'schedules:hungry', schedule.id)
        else
            redis.call('ZADD', prefix .. 'schedules:hungry', int(schedule.known_to), schedule.id)
        end
    end
    write_schedule(schedule)
end

-- The queue's record says when the first schedule is due, so that a queue without any never asks for it.
local function note_first_slot(meta, not_before)
    local first = redis.call('ZRANGE', prefix .. 'schedules', 0, 0, 'WITHSCORES')
    local at = tonumber(first[2] or NEVER)
    if at < NEVER then
        set_meta('schedule_at', int(math.max(at, not_before or 0)))
    elseif meta.schedule_at then
        set_meta('schedule_at', nil)
    end
end

-- Takes slots that were computed elsewhere: of a cron, in order, from `known_to` on.
local function add_slots(schedule, slots, is_last)
    for _, slot in ipairs(slots) do
        schedule.slots[#schedule.slots + 1] = tonumber(slot)
        schedule.known_to = tonumber(slot)
    end
    schedule.at = schedule.slots[1]
    schedule.dry = is_last and '1' or nil
end

-- What readers get: id, then name, value, name, value …, with the template.
local function schedule_reply(id)
    local flat = redis.call('HGETALL', prefix .. 'schedule:' .. id)
    return #flat > 0 and { id, unpack(flat) } or {}
end
