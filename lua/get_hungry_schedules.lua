#!lua flags=no-writes
-- Reads which schedules need slots, those that know the fewest ahead first.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   count  number  at most
-- Returns
--   schedules: {id, version, known_to, cron, tz, end_at or ""}
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, schedule_record
local _, _ = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local hungry = {}
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'schedules:hungry', 0, count - 1)) do
    local schedule = load_schedule(id)
    if schedule then
        hungry[#hungry + 1] = { id, schedule.version, int(schedule.known_to), schedule.cron, schedule.tz,
            schedule.end_at and int(schedule.end_at) or '' }
    end
end
return hungry
