-- include: prefix, now, int, schedule_record, store_job, refuse_add
-- Makes the iterations of schedules whose slot has come. Each schedule moves to its first slot after now: of slots
-- that were missed one is made, late; the others are counted.
local OUTBOX_FULL = 100000
local NO_ROOM_MS = 1000
local MAX_COPIED_BYTES = 1048576

-- What refuses users' adds holds iterations up, too. One would be written to a server at maxmemory, as everything is
-- that a claim does; so it waits for room. (Servers without leave to ask count as having some.)
local function is_server_full()
    local info = redis.pcall('INFO', 'memory')
    if type(info) ~= 'string' then
        return false
    end
    local max = tonumber(string.match(info, '\nmaxmemory:(%d+)') or 0)
    local used = tonumber(string.match(info, '\nused_memory:(%d+)') or 0)
    local not_counted = tonumber(string.match(info, '\nmem_not_counted_for_evict:(%d+)') or 0)
    return max > 0 and used - not_counted > max
end

local function has_room(meta)
    return not is_closing(meta) and has_places(meta, 1) and redis.call('XLEN', prefix .. 'outbox') < OUTBOX_FULL
        and not is_server_full()
end

-- The last iteration, while it has not started.
local function unstarted_iteration(schedule)
    local job = schedule.last and load_job(schedule.last)
    if job and not job.started and (job.state == 'waiting' or job.state == 'delayed') then
        return job
    end
end

local function store_iteration(meta, schedule, id)
    local template = redis.call('HMGET', prefix .. 'schedule:' .. schedule.id, 'header', 'data')
    store_job(meta, 'schedule', id, template[1], template[2])
    return #template[2]
end

-- Returns how many bytes of data it copied.
local function make_iteration(meta, schedule, slot)
    local id = schedule.id .. ':' .. int(slot)
    if unstarted_iteration(schedule) or has_record(id) then
        schedule.skipped = schedule.skipped + 1
        return 0
    end
    schedule.made, schedule.last = schedule.made + 1, id
    return store_iteration(meta, schedule, id)
end

local function leave_slot(schedule)
    if schedule.every_ms then
        local missed = math.floor((math.min(now, schedule.end_at or now) - schedule.at) / schedule.every_ms)
        schedule.skipped = schedule.skipped + missed
        schedule.at = schedule.at + (missed + 1) * schedule.every_ms
        return
    end
    local ahead = {}
    for _, slot in ipairs(schedule.slots) do
        if slot > now then
            ahead[#ahead + 1] = slot
        end
    end
    schedule.skipped = schedule.skipped + #schedule.slots - #ahead - 1
    schedule.slots, schedule.at = ahead, ahead[1]
    schedule.known_to = math.max(schedule.known_to, now)
end

local function run_schedule(meta, schedule)
    local copied = make_iteration(meta, schedule, schedule.at)
    leave_slot(schedule)
    save_schedule(schedule)
    return copied
end

-- For when the first slot has come. Returns how many schedules were run, and whether more are due.
local function run_schedules(meta, limit)
    if not has_room(meta) then
        note_first_slot(meta, now + NO_ROOM_MS)
        return 0, false
    end
    local ids = redis.call('ZRANGEBYSCORE', prefix .. 'schedules', '-inf', int(now), 'LIMIT', 0, limit)
    local run, copied = 0, 0
    while run < #ids and copied < MAX_COPIED_BYTES do
        run = run + 1
        local schedule = load_schedule(ids[run])
        if schedule then
            copied = copied + run_schedule(meta, schedule)
        else -- somebody deleted keys by hand; no claim may fail of that
            redis.call('ZREM', prefix .. 'schedules', ids[run])
        end
    end
    note_first_slot(meta)
    return run, tonumber(meta.schedule_at or NEVER) <= now
end
