#!lua flags=no-writes
-- Reads the queue's events after one that the reader has. That one must still be there: if it was trimmed, or
-- belongs to another life of the queue, the reader cannot go on without a gap.
--
-- KEYS
--   meta   hash    the queue's record
--   none   -       never created
-- ARGV
--   after  text    event id
--   count  number  at most 1000
-- Returns
--   {"1", events}, an event being {id, {"e", JSON}}; or {"0"} when `after` is not covered
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local after, count = ARGV[1], tonumber(ARGV[2])

-- Nothing was ever trimmed of the stream of a queue whose first reader came before its first event.
local function is_whole()
    if redis.call('EXISTS', prefix .. 'events') == 0 then
        return true
    end
    local info, known = redis.call('XINFO', 'STREAM', prefix .. 'events'), {}
    for i = 1, #info, 2 do
        known[info[i]] = info[i + 1]
    end
    return known['entries-added'] == known['length']
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local events = redis.call('XRANGE', prefix .. 'events', after, '+', 'COUNT', count + 1)
if events[1] and events[1][1] == after then
    return { '1', { unpack(events, 2) } }
end
if (after == '0-0' or after == id_before_all(meta)) and is_whole() then
    return { '1', events }
end
return { '0' }
