#!lua flags=no-writes
-- Reads a page of the schedules, next first; those without a next slot are the last.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   start  number  from 0
--   count  number  at most 100
-- Returns
--   schedules, as in get_job_scheduler
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, schedule_record
local _, _ = KEYS[1], KEYS[2]
local start, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local replies = {}
for i, id in ipairs(redis.call('ZRANGE', prefix .. 'schedules', start, start + count - 1)) do
    replies[i] = schedule_reply(id)
end
return replies
