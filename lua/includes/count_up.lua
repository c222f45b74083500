-- include: prefix, now, int, read_meta
-- Counters, for ever and for each minute. Those in `meta` only grow. When another minute begins, what they grew by in
-- the last one becomes `metrics:<minute>`, a hash.
local KINDS = { 'added', 'started', 'completed', 'failed', 'canceled', 'retried', 'stalled', 'wait_ms', 'run_ms' }
local FORMAT = '<I6I6I6I5I5I5I5I7I7'
local MINUTE_MS = 60000
local METRICS_MS = 604800000
local this_minute = math.floor(now / MINUTE_MS)

-- What they were when `meta.minute` began: kind → number.
local function read_totals_before()
    local text = redis.call('GET', prefix .. 'totals:before')
    local numbers, counters = text and { struct.unpack(FORMAT, text) } or {}, {}
    for place, kind in ipairs(KINDS) do
        counters[kind] = numbers[place] or 0
    end
    return counters
end

local function begin_minute(meta)
    if meta.minute > 0 then
        local before, key = read_totals_before(), prefix .. 'metrics:' .. int(meta.minute)
        for _, kind in ipairs(KINDS) do
            if meta[kind] ~= before[kind] then
                redis.call('HINCRBY', key, kind, int(meta[kind] - before[kind]))
            end
        end
        redis.call('PEXPIREAT', key, int((meta.minute + 1) * MINUTE_MS + METRICS_MS))
        redis.call('SET', prefix .. 'totals:before', struct.pack(FORMAT, meta.added, meta.started, meta.completed,
            meta.failed, meta.canceled, meta.retried, meta.stalled, meta.wait_ms, meta.run_ms))
    end
    meta.minute, meta.is_changed = this_minute, true
end

local function count_up(kind, n)
    local meta = queue_meta()
    if meta.metrics == 'off' then
        return
    end
    if meta.minute ~= this_minute then
        begin_minute(meta)
    end
    meta[kind], meta.is_changed = meta[kind] + (n or 1), true
end
