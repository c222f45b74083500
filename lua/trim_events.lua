#!lua flags=allow-oom
-- Trims the stream of events to its newest. Readers who had not read the others get a new snapshot.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   count  number  how many entries stay; one has up to eight events
-- Returns
--   how many entries were deleted
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1])

local _, refusal = read_meta()
if refusal then
    return refusal
end
return redis.call('XTRIM', prefix .. 'events', 'MAXLEN', '=', count)
