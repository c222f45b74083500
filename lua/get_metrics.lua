#!lua flags=no-writes
-- Reads one counter, minute by minute. The present minute counts at once.
--
-- KEYS
--   meta          string  the queue's record
--   none          -       never created
-- ARGV
--   kind          text    what was counted, see `totals` in lua/README.md
--   start_minute  number  minutes since the epoch; below 1 = so many before the end
--   end_minute    number  the last one, too; 0 = the present one
-- Returns
--   {start_minute, present minute, count of each minute}; at most 1,440 minutes, the first ones
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int, count_up
local _, _ = KEYS[1], KEYS[2]
local kind, start_minute, end_minute = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local MOST = 1440

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local present = math.floor(now / MINUTE_MS)
if end_minute == 0 then
    end_minute = present
end
if start_minute < 1 then
    start_minute = math.max(end_minute + start_minute, 0)
end
local before = read_totals_before()[kind]
local grown = before and meta[kind] - before or 0
local counts = {}
for minute = start_minute, math.min(end_minute, start_minute + MOST - 1) do
    local n = tonumber(redis.call('HGET', prefix .. 'metrics:' .. int(minute), kind) or 0)
    counts[#counts + 1] = int(minute == meta.minute and n + grown or n)
end
return { int(start_minute), int(present), counts }
