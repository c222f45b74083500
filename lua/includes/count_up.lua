-- include: prefix, now, int, read_meta
-- Counters, for ever and for each minute. A script counts in a table and writes at its end. `meta.totals` only grows: a
-- packed number for each kind, since a command for each costs more than all else together. When another minute begins,
-- what it grew by in the last one becomes `metrics:<minute>`, a hash.
local KINDS = { 'added', 'started', 'completed', 'failed', 'canceled', 'retried', 'stalled', 'wait_ms', 'run_ms' }
local FORMAT = '<I6I6I6I5I5I5I5I7I7'
local BYTES = 52 -- of that: with a text of more than 64 a hash takes twice as much
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

local function numbers_of(text)
    return struct.unpack(FORMAT, text or string.rep('\0', BYTES))
end

-- Kind → number.
local function unpack_counters(text)
    local counters, numbers = {}, { numbers_of(text) }
    for place, kind in ipairs(KINDS) do
        counters[kind] = numbers[place]
    end
    return counters
end

local function read_totals(meta)
    return unpack_counters(meta.totals)
end

local function read_totals_before()
    return unpack_counters(redis.call('GET', prefix .. 'totals:before') or nil)
end

local function begin_minute(meta, minute)
    local last = meta.minute
    if last then
        local totals, before = read_totals(meta), read_totals_before()
        local key = prefix .. 'metrics:' .. last
        for _, kind in ipairs(KINDS) do
            if totals[kind] ~= before[kind] then
                redis.call('HINCRBY', key, kind, int(totals[kind] - before[kind]))
            end
        end
        redis.call('PEXPIREAT', key, int((tonumber(last) + 1) * MINUTE_MS + METRICS_MS))
    end
    if meta.totals then
        redis.call('SET', prefix .. 'totals:before', meta.totals)
    end
    set_meta('minute', minute)
end

local function flush_queue(meta, kinds)
    if meta.metrics == 'off' then
        return
    end
    local minute = int(math.floor(now / MINUTE_MS))
    if meta.minute ~= minute then
        begin_minute(meta, minute)
    end
    local added, started, completed, failed, canceled, retried, stalled, wait_ms, run_ms = numbers_of(meta.totals)
    set_meta('totals', struct.pack(FORMAT, added + (kinds.added or 0), started + (kinds.started or 0),
        completed + (kinds.completed or 0), failed + (kinds.failed or 0), canceled + (kinds.canceled or 0),
        retried + (kinds.retried or 0), stalled + (kinds.stalled or 0), wait_ms + (kinds.wait_ms or 0),
        run_ms + (kinds.run_ms or 0)))
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
