#!lua flags=no-writes
-- Reads a page of the workers that are there, the one heard of last first.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   start     number  from 0
--   count     number  at most 100
--   alive_ms  number  one not heard of for longer is left out
-- Returns
--   {how many there are, {last heard of, "<started_at> <record>", …}}
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int
local _, _ = KEYS[1], KEYS[2]
local start, count, alive_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local from = int(now - alive_ms)
local found = redis.call('ZREVRANGEBYSCORE', prefix .. 'workers', '+inf', from, 'WITHSCORES', 'LIMIT', start, count)
local records = {}
for i = 1, #found, 2 do
    local record = redis.call('GET', prefix .. 'worker:' .. found[i])
    if record then
        records[#records + 1] = found[i + 1]
        records[#records + 1] = record
    end
end
return { redis.call('ZCOUNT', prefix .. 'workers', from, '+inf'), records }
