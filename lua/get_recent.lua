#!lua flags=no-writes
-- Reads a page over all states: the unfinished first (active, waiting, delayed, waiting-children), then the finished,
-- newest first.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   start  number  0 to 1000
--   count  number  at most 100
-- Returns
--   {jobs, last event id, looked}: as of get_jobs
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_jobs
local _, _ = KEYS[1], KEYS[2]
local start, count = tonumber(ARGV[1]), tonumber(ARGV[2])

-- The newest `most` of all finished jobs; sorting at most 3 · 1,100 of them.
local function newest_finished(most)
    local found = {}
    for _, state in ipairs({ 'completed', 'failed', 'canceled' }) do
        local flat = redis.call('ZREVRANGE', prefix .. state, 0, most - 1, 'WITHSCORES')
        for i = 1, #flat, 2 do
            found[#found + 1] = { flat[i], tonumber(flat[i + 1]) }
        end
    end
    table.sort(found, function(one, other)
        if one[2] ~= other[2] then
            return one[2] > other[2]
        end
        return one[1] > other[1]
    end)
    return found
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local ids, skipped = {}, start
for _, state in ipairs({ 'active', 'waiting', 'delayed', 'waiting-children' }) do
    for _, id in ipairs(ids_in(state, skipped, count - #ids)) do
        ids[#ids + 1] = id
    end
    skipped = math.max(skipped - size_of(state), 0)
end
if #ids < count then
    local finished = newest_finished(skipped + count - #ids)
    for i = skipped + 1, math.min(#finished, skipped + count - #ids) do
        ids[#ids + 1] = finished[i][1]
    end
end
return { job_replies(ids), last_event_id(meta), #ids }
