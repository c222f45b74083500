#!lua flags=no-writes
-- Reads the queue's events after one that the reader has. That one must still be there: if it was trimmed, or
-- belongs to another life of the queue, the reader cannot go on without a gap.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   after  text    event id
--   count  number  of entries, at most 128
-- Returns
--   {"1", entries} as XRANGE gives them: {id, {"e", lines}}, the first perhaps with events up to `after`; or {"0"} when
--   `after` is not covered
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local after, count = ARGV[1], tonumber(ARGV[2])

-- Nothing was ever trimmed of the stream of a queue whose first reader came before its first event.
local function is_whole()
    local info = stream_info()
    return not info or info['entries-added'] == info['length']
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end

-- Whether an event is one of an entry's, whose id is that of its last event; the others count up to it.
local function holds(entry, event_id)
    if entry[1] == event_id then
        return true
    end
    local ms, last = string.match(entry[1], '^(%d+)%-(%d+)$')
    local of, number = string.match(event_id, '^(%d+)%-(%d+)$')
    local _, breaks = string.gsub(entry[2][2], '\n', '')
    return ms == of and last - number <= breaks
end

local entries = redis.call('XRANGE', prefix .. 'events', after, '+', 'COUNT', count)
local is_from_the_start = after == '0-0' or after == id_before_all(meta)
if entries[1] and holds(entries[1], after) or is_from_the_start and is_whole() then
    return { '1', entries }
end
return { '0' }
