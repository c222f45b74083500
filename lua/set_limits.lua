#!lua flags=allow-oom
-- Sets or lifts the queue's limits on starting jobs.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   token        text    request token
--   concurrency  number  jobs that may run at once, over all workers; "" = unchanged, 0 = no limit
--   rate_max     number  starts in any window of rate_ms; "" = unchanged, 0 = no limit
--   rate_ms      number  the window; "" with rate_max
--   limited_ms   number  nothing starts for so long from now; "" = unchanged
--   max_waiting  number  jobs that may wait or be delayed when one is added; "" = unchanged, 0 = no limit
-- Returns
--   "OK"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: open_queue, answer, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local token, concurrency, rate_max, rate_ms, limited_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_waiting = ARGV[6]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
open_queue(meta)
if concurrency ~= '' then
    set_meta('concurrency', concurrency ~= '0' and concurrency or nil)
end
if rate_max ~= '' then
    set_meta('rate_max', rate_max ~= '0' and rate_max or nil)
    set_meta('rate_ms', rate_max ~= '0' and rate_ms or nil)
end
if limited_ms ~= '' then
    set_meta('limited_until', limited_ms ~= '0' and int(now + tonumber(limited_ms)) or nil)
end
if max_waiting ~= '' then
    set_meta('max_waiting', max_waiting ~= '0' and max_waiting or nil)
end
wake_worker()
return answer(token, 'OK')
