#!lua
-- Makes a schedule, or changes it. Unchanged timing goes on as it was, with the new template, limit and end; changed
-- timing begins anew. An iteration that has not started is replaced when anything of it changed.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   token        text    request token
--   id           text
--   header_json  JSON    orchestrator.job.Header of the template
--   data         JSON    of the template; one line, opaque
--   every_ms     number  "" = by cron
--   cron         text    "" = by every_ms
--   tz           text    of the cron; "" with every_ms
--   start_at     number  no slot before it; "" = none
--   end_at       number  no slot after it; "" = none
--   limit        number  iterations in all; "" = no limit
--   immediately  flag    "1" = an iteration now, too, when the timing is new
--   known_to     number  the instant after which the slots were computed; "" with every_ms
--   is_last      flag    "1" = after these slots the cron has none
--   slots        number  of a cron, in order; none with every_ms
-- Returns
--   the schedule as get_job_scheduler answers it; {} when a repeated call finds that it was removed since
-- Errors
--   LAYOUT_MISMATCH
--   QUEUE_FULL  the queue is being obliterated; or an iteration is to be made at once, and add_jobs would be refused
--   GROUP_FULL  the same, for the group of the template
-- Events
--   scheduled (of the queue, when anything changed); added; those of remove_job
-- include: read_meta, answer, open_queue, schedule_record, replace_iteration, emit, count_up, refuse_add
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local every_ms, cron, tz, start_at, end_at = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local limit, immediately, known_to, is_last = ARGV[10], ARGV[11] == '1', tonumber(ARGV[12]), ARGV[13] == '1'
local slots = { unpack(ARGV, 14) }

local function has_timing(schedule)
    return schedule and schedule.every_ms == tonumber(every_ms) and (schedule.cron or '') == cron
        and (schedule.tz or '') == tz and schedule.start_at == tonumber(start_at)
end

-- The first slot of an `every_ms` that is to come: of a new schedule it may be now, one that had ended goes on later.
local function first_slot(schedule, is_new)
    local periods = (now - schedule.anchor) / schedule.every_ms
    local missed = is_new and math.ceil(periods) or math.floor(periods) + 1
    return schedule.anchor + math.max(missed, 0) * schedule.every_ms
end

local function begin()
    redis.call('DEL', prefix .. 'schedule:' .. id)
    return {
        id = id, stored = {}, made = 0, skipped = 0, slots = {}, start_at = tonumber(start_at),
        every_ms = tonumber(every_ms), anchor = every_ms ~= '' and (tonumber(start_at) or now) or nil,
        cron = cron ~= '' and cron or nil, tz = tz ~= '' and tz or nil,
    }
end

-- What has come and was not run yet stays; what is ahead was computed anew, perhaps for another end. A slot that was
-- run while the caller computed does not come back.
local function set_slots(schedule)
    local after = schedule.at and schedule.at - 1 or schedule.stored.finished and now or schedule.known_to or known_to
    local kept, ahead = {}, {}
    for _, slot in ipairs(schedule.slots) do
        if slot <= known_to then
            kept[#kept + 1] = slot
        end
    end
    for _, slot in ipairs(slots) do
        if tonumber(slot) > after then
            ahead[#ahead + 1] = slot
        end
    end
    schedule.slots, schedule.known_to = kept, math.max(known_to, after)
    add_slots(schedule, ahead, is_last)
end

local function set_template()
    local key = prefix .. 'schedule:' .. id
    local stored = redis.call('HMGET', key, 'header', 'data')
    if stored[1] == header_json and stored[2] == data then
        return false
    end
    redis.call('HSET', key, 'header', header_json, 'data', data)
    return true
end

-- Why an iteration cannot be made at once; one that has not started gives its place up for it.
local function refuse_at_once(meta, schedule)
    if not immediately or has_timing(schedule) or schedule and unstarted_iteration(schedule) then
        return nil
    end
    return refuse_outbox(OUTBOX_FULL) or refuse_waiting(meta, 1) or refuse_group(cjson.decode(header_json).g, 1)
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
if answered(token) then
    return schedule_reply(id)
end
local schedule = load_schedule(id)
local full = refuse_closing(meta) or refuse_at_once(meta, schedule)
if full then
    return full
end
open_queue(meta)
local is_new = not has_timing(schedule)
if is_new then
    if schedule then
        remove_iteration(schedule)
    end
    schedule = begin()
end
local changed = set_template() or is_new
if changed and not is_new then
    replace_iteration(meta, schedule)
end
changed = changed or schedule.end_at ~= tonumber(end_at) or schedule.limit ~= tonumber(limit)
schedule.end_at, schedule.limit, schedule.version, schedule.finished = tonumber(end_at), tonumber(limit), token, nil
if schedule.cron then
    set_slots(schedule)
else
    schedule.at = schedule.at or first_slot(schedule, is_new)
end
finish_if_over(schedule)
if is_new and immediately and not schedule.finished and schedule.at ~= now then
    make_iteration(meta, schedule, now)
end
if schedule.at and schedule.at <= now and has_room(meta) then -- else as soon as there is room
    run_schedule(meta, schedule)
else
    save_schedule(schedule)
end
local first_before = meta.schedule_at
note_first_slot(meta)
if meta.schedule_at and meta.schedule_at ~= first_before then
    wake_worker() -- it is due before what the sleeping ones know of
end
if changed then
    emit_queue_event('scheduled', ',"schedule":"' .. id .. '"')
end
answer(token, '1')
return schedule_reply(id)
