#!lua flags=allow-oom
-- Acknowledges outbox entries and deletes them, in one step.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   group  text
--   ids    text  one or more entry ids
-- Returns
--   how many entries were deleted
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local group, ids = ARGV[1], { unpack(ARGV, 2) }

local _, refusal = read_meta()
if refusal then
    return refusal
end
redis.call('XACK', prefix .. 'outbox', group, unpack(ids))
return redis.call('XDEL', prefix .. 'outbox', unpack(ids))
