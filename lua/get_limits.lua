#!lua flags=no-writes
-- Reads the queue's limits, and how long they hold up the next start, as of one instant.
--
-- KEYS
--   meta  string  the queue's record
--   none  -       never created
-- ARGV
--   none
-- Returns
--   {concurrency, rate_max, rate_ms, wait_ms, active}: 0 = no such limit; wait_ms = until the limits on starts (not on
--   concurrency, nor a pause) let one start
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, start_limit
local _, _ = KEYS[1], KEYS[2]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local starts = { limited_until = meta.limited_until, rate_max = meta.rate_max, rate_ms = meta.rate_ms }
local _, wait_ms = allowance(starts, 1)
return {
    tonumber(meta.concurrency or 0),
    tonumber(meta.rate_max or 0),
    tonumber(meta.rate_ms or 0),
    wait_ms or 0,
    redis.call('ZCARD', prefix .. 'active'),
}
