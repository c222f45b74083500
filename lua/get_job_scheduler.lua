#!lua flags=no-writes
-- Reads a schedule, and the server's clock.
--
-- KEYS
--   meta  string  the queue's record
--   none  -       never created
-- ARGV
--   id    text
-- Returns
--   {now, schedule}: {} when there is none, else {id, name, value, …}; `header` and `data` are its template
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int, schedule_record
local _, _ = KEYS[1], KEYS[2]
local id = ARGV[1]

local _, refusal = read_meta()
if refusal then
    return refusal
end
return { int(now), schedule_reply(id) }
