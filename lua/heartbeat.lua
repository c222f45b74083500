#!lua flags=allow-oom
-- Says that a worker is there, and what it does; or that it leaves.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   worker    text    the worker's id
--   record    JSON    orchestrator.presence.WorkerRecord; "" = it leaves
--   alive_ms  number  for how long it counts as there without another heartbeat
-- Returns
--   how many others were found to be gone
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int
local _, _ = KEYS[1], KEYS[2]
local worker, record, alive_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local GONE_AT_ONCE = 100

local _, refusal = read_meta()
if refusal then
    return refusal
end
local key = prefix .. 'worker:' .. worker
if record == '' then
    redis.call('DEL', key)
    redis.call('ZREM', prefix .. 'workers', worker)
else
    local since = string.match(redis.call('GET', key) or '', '^%d+') or int(now)
    redis.call('SET', key, since .. ' ' .. record, 'PX', int(alive_ms))
    redis.call('ZADD', prefix .. 'workers', int(now), worker)
end
local before = '(' .. int(now - alive_ms)
local gone = redis.call('ZRANGEBYSCORE', prefix .. 'workers', '-inf', before, 'LIMIT', 0, GONE_AT_ONCE)
if #gone > 0 then
    redis.call('ZREM', prefix .. 'workers', unpack(gone))
end
return #gone
