#!lua flags=allow-oom
-- Sets what holds of every group that says nothing else (concurrency, rate, size), and how groups are treated
-- (ageing_ms, fair_ungrouped). 0 = none.
--
-- KEYS
--   meta     string  the queue's record
--   none     -       never created
-- ARGV
--   token    text  request token
--   changes  JSON  {group_concurrency, group_rate_max, group_rate_ms, group_max_waiting, ageing_ms, …}, what changes
-- Returns
--   "OK"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: open_queue, answer, groups, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local token, changes = ARGV[1], cjson.decode(ARGV[2])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
open_queue(meta)
for name, value in pairs(changes) do
    set_meta(name, value ~= 0 and int(value) or nil)
end
-- Held groups may be free now: all are looked at again, some with each claim.
if redis.call('EXISTS', prefix .. 'groups:held') == 1 then
    redis.call('ZUNIONSTORE', prefix .. 'groups:held', 1, prefix .. 'groups:held', 'WEIGHTS', 0)
end
wake_worker()
return answer(token, 'OK')
