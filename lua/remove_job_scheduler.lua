#!lua flags=allow-oom
-- Removes a schedule, and its last iteration if that has not started.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text  request token
--   id     text
-- Returns
--   "removed", or "" when there was no such schedule
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   unscheduled (of the queue); those of remove_job
-- include: read_meta, answer, schedule_record, replace_iteration, emit
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local schedule = load_schedule(id)
if not schedule then
    return answer(token, '')
end
remove_iteration(schedule)
redis.call('DEL', prefix .. 'schedule:' .. id)
redis.call('ZREM', prefix .. 'schedules', id)
redis.call('ZREM', prefix .. 'schedules:hungry', id)
note_first_slot(meta)
emit_queue_event('unscheduled', ',"schedule":"' .. id .. '"')
return answer(token, 'removed')
