-- include: prefix, now, int, read_meta
-- Counters, for ever and for each minute. A script counts in a table and writes at its end, one command a kind and
-- queue. `totals` only grows. When another minute begins, what it grew by in the last one becomes `metrics:<minute>`.
local MINUTE_MS = 60000
local METRICS_MS = 604800000
local counted = {} -- by queue: a script may work in several

local function count_up(kind, n)
    local kinds = counted[prefix]
    if not kinds then
        kinds = {}
        counted[prefix] = kinds
    end
    kinds[kind] = (kinds[kind] or 0) + (n or 1)
end

local function read_counters(key)
    local flat = redis.call('HGETALL', prefix .. key)
    local counters = {}
    for i = 1, #flat, 2 do
        counters[flat[i]] = tonumber(flat[i + 1])
    end
    return counters, flat
end

local function begin_minute(meta, minute)
    local totals, flat = read_counters('totals')
    local last = meta.minute
    if last then
        local before = read_counters('totals:before')
        local key = prefix .. 'metrics:' .. last
        for kind, total in pairs(totals) do
            if total ~= before[kind] then
                redis.call('HINCRBY', key, kind, int(total - (before[kind] or 0)))
            end
        end
        redis.call('PEXPIREAT', key, int((tonumber(last) + 1) * MINUTE_MS + METRICS_MS))
    end
    if #flat > 0 then
        redis.call('HSET', prefix .. 'totals:before', unpack(flat))
    end
    redis.call('HSET', prefix .. 'meta', 'minute', minute)
    meta.minute = minute
end

local function flush_queue(meta, kinds)
    if meta.metrics == 'off' then
        return
    end
    local minute = int(math.floor(now / MINUTE_MS))
    if meta.minute ~= minute then
        begin_minute(meta, minute)
    end
    local totals = prefix .. 'totals'
    for kind, n in pairs(kinds) do
        redis.call('HINCRBY', totals, kind, n)
    end
end

local function flush_counts()
    local home = prefix
    for queue, kinds in pairs(counted) do
        prefix = queue
        flush_queue(queue_meta(), kinds)
    end
    prefix, counted = home, {}
end
AT_END.count_up = flush_counts
