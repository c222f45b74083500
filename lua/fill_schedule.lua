#!lua flags=allow-oom
-- A duty: gives a cron's schedule its next slots. Does nothing where the schedule has changed since it was read.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   id        text
--   version   text    of the schedule, as read
--   known_to  number  as read: the slots are those after it
--   is_last   flag    "1" = after these slots the cron has none
--   slots     number  in order
-- Returns
--   1 when the slots were taken, else 0
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, schedule_record, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local id, version, known_to, is_last = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local slots = { unpack(ARGV, 5) }

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local schedule = load_schedule(id)
if not schedule or schedule.version ~= version or schedule.known_to ~= known_to then
    return 0
end
add_slots(schedule, slots, is_last)
save_schedule(schedule)
local first_before = meta.schedule_at
note_first_slot(meta)
if meta.schedule_at and meta.schedule_at ~= first_before then
    wake_worker()
end
return 1
