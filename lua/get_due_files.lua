#!lua flags=no-writes
-- Reads which folders of the storage may be deleted now.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   count  number  at most
-- Returns
--   paths
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int
local _, _ = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1])

local _, refusal = read_meta()
if refusal then
    return refusal
end
return redis.call('ZRANGEBYSCORE', prefix .. 'sweep', '-inf', int(now), 'LIMIT', 0, count)
