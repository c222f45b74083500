-- include: prefix
-- What readers get of a group: {id, waiting, then name, value …}.
local function group_reply(gid)
    local reply = { gid, redis.call('ZCARD', prefix .. 'group:' .. gid) }
    for _, each in ipairs(redis.call('HGETALL', prefix .. 'ginfo:' .. gid)) do
        reply[#reply + 1] = each
    end
    return reply
end
