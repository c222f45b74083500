#!lua flags=no-writes
-- Counts the jobs of each state; records whose retention has ended do not count.
--
-- KEYS
--   meta  hash  the queue's record
--   none  -     never created
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

local function live(state)
    return redis.call('ZCARD', prefix .. state) - redis.call('ZCOUNT', prefix .. 'expires:' .. state, '-inf', int(now))
end

local _, refusal = read_meta()
if refusal then
    return refusal
end
return {
    'waiting', redis.call('ZCARD', prefix .. 'wait') + redis.call('ZCARD', prefix .. 'grouped'),
    'prioritized', redis.call('ZCOUNT', prefix .. 'wait', '1', '+inf')
        + redis.call('ZCOUNT', prefix .. 'grouped', '1', '+inf'),
    'grouped', redis.call('ZCARD', prefix .. 'grouped'),
    'delayed', redis.call('ZCARD', prefix .. 'delayed'),
    'active', redis.call('ZCARD', prefix .. 'active'),
    'waiting-children', redis.call('ZCARD', prefix .. 'waiting_children'),
    'completed', live('completed'),
    'failed', live('failed'),
    'canceled', live('canceled'),
}
