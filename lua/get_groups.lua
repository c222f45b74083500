#!lua flags=no-writes
-- Reads a page of the groups: those in the ring in the order of their turns, then the held ones, then idle ones.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   start  number  from 0
--   count  number  at most 100
-- Returns
--   {total, groups}; a group is {id, waiting, then name, value of its record …}
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_group
local _, _ = KEYS[1], KEYS[2]
local start, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local total, replies = 0, {}
for _, place in ipairs({ 'groups', 'groups:held', 'groups:idle' }) do
    local size = redis.call('ZCARD', prefix .. place)
    if start < size and #replies < count then
        for _, gid in ipairs(redis.call('ZRANGE', prefix .. place, start, start + count - #replies - 1)) do
            replies[#replies + 1] = group_reply(gid)
        end
    end
    start, total = math.max(start - size, 0), total + size
end
return { total, replies }
