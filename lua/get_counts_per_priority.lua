#!lua flags=no-writes
-- Counts the waiting jobs of some priorities.
--
-- KEYS
--   meta        string  the queue's record
--   none        -       never created
-- ARGV
--   priorities  number  up to 500
-- Returns
--   for each its count
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local priorities = { unpack(ARGV) }

local _, refusal = read_meta()
if refusal then
    return refusal
end
local counts = {}
for i, priority in ipairs(priorities) do
    counts[i] = redis.call('ZCOUNT', prefix .. 'wait', priority, priority)
        + redis.call('ZCOUNT', prefix .. 'grouped', priority, priority)
end
return counts
