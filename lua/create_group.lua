#!lua flags=allow-oom
-- Creates the outbox and its consumer group, from the first entry on; does nothing when they are there.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   group  text
-- Returns
--   "OK"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local group = ARGV[1]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local reply = redis.pcall('XGROUP', 'CREATE', prefix .. 'outbox', group, '0', 'MKSTREAM')
if type(reply) == 'table' and reply.err and not string.find(reply.err, 'BUSYGROUP', 1, true) then
    return reply
end
return 'OK'
