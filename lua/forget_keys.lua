#!lua flags=allow-oom
-- Deletes keys of a queue that is being obliterated and has no job any more. `sweep` stays: it names files that
-- somebody has yet to delete, and goes with the last of them.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   epoch  text  of the life that is to end, as in `meta`
--   names  text  up to 500 keys without their prefix
-- Returns
--   how many were deleted, or -1 when the queue has jobs, takes adds again, or begins another life
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int
local _, _ = KEYS[1], KEYS[2]
local epoch, names = ARGV[1], { unpack(ARGV, 2) }

local SETS = { 'active', 'wait', 'grouped', 'delayed', 'waiting_children', 'completed', 'failed', 'canceled' }

local function has_jobs()
    for _, name in ipairs(SETS) do
        if redis.call('EXISTS', prefix .. name) == 1 then
            return true
        end
    end
    return false
end

-- A stream that begins anew in the millisecond of the old one's last event might use that event's id again.
local function is_still_told()
    local last = redis.call('XREVRANGE', prefix .. 'events', '+', '-', 'COUNT', 1)[1]
    return last and tonumber(string.match(last[1], '^%d+')) >= now
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
if int(meta.epoch) ~= epoch or tonumber(meta.closing_until or 0) <= now or has_jobs() then
    return -1
end
local deleted = 0
for _, name in ipairs(names) do
    if name ~= 'sweep' and not (name == 'events' and is_still_told()) then
        deleted = deleted + redis.call('DEL', prefix .. name)
    end
end
return deleted
