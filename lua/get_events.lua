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
--   {"1", events}, an event being {id, JSON}; or {"0"} when `after` is not covered
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, int
local _, _ = KEYS[1], KEYS[2]
local after, count = ARGV[1], tonumber(ARGV[2])

local ENTRIES_AT_ONCE = 100

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
local events, is_covered = {}, (after == '0-0' or after == id_before_all(meta)) and is_whole()

local function add_events(entry)
    local ms, last = string.match(entry[1], '^(%d+)%-(%d+)$')
    local _, breaks = string.gsub(entry[2][2], '\n', '')
    local number = tonumber(last) - breaks
    for text in string.gmatch(entry[2][2], '[^\n]+') do
        local event_id = ms .. '-' .. int(number)
        if event_id == after then
            events, is_covered = {}, true -- what stood before it in its entry is no news
        elseif #events < count then
            events[#events + 1] = { event_id, text }
        end
        number = number + 1
    end
end

local from = after
repeat
    local entries = redis.call('XRANGE', prefix .. 'events', from, '+', 'COUNT', ENTRIES_AT_ONCE)
    for _, entry in ipairs(entries) do
        add_events(entry)
        from = '(' .. entry[1]
    end
until #entries < ENTRIES_AT_ONCE or not is_covered or #events >= count
return is_covered and { '1', events } or { '0' }
