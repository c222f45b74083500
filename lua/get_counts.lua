#!lua flags=no-writes
-- Counts the jobs of each state; records whose retention has ended do not count.
--
-- KEYS
--   meta  string  the queue's record
--   none  -       never created
-- ARGV
--   none
-- Returns
--   {state, count, …}: waiting (of which prioritized, grouped), delayed, active, waiting-children, completed,
--   failed, canceled
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int
local _, _ = KEYS[1], KEYS[2]

local function size(key)
    return redis.call('ZCARD', prefix .. key)
end

-- Most queues have nothing in most of their sets: then nothing is to be looked for in them.
local function live(state)
    local held = size(state)
    return held == 0 and 0 or held - redis.call('ZCOUNT', prefix .. 'expires:' .. state, '-inf', int(now))
end

local function prioritized(key, held)
    return held == 0 and 0 or redis.call('ZCOUNT', prefix .. key, '1', '+inf')
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local wait, grouped = size('wait'), meta.grouped and size('grouped') or 0
return {
    'waiting', wait + grouped,
    'prioritized', prioritized('wait', wait) + prioritized('grouped', grouped),
    'grouped', grouped,
    'delayed', size('delayed'),
    'active', size('active'),
    'waiting-children', size('waiting_children'),
    'completed', live('completed'),
    'failed', live('failed'),
    'canceled', live('canceled'),
}
