#!lua flags=no-writes
-- Reads what a monitor asks of a queue, beside the counts of its states.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   alive_ms  number  a worker not heard of for longer does not count
-- Returns
--   {paused 0|1, due, live workers, oldest_ms, totals}; due: delayed jobs whose time has come; oldest_ms: for how long
--   the longest waiting job has waited, -1 = none waits; totals: {kind, number, …} since the queue's first job
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, now, int, count_start, count_up, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local alive_ms = tonumber(ARGV[1])

-- Of each priority the first has waited longest; so many priorities are looked at, the soonest first.
local PRIORITIES = 16

local function oldest_ms(key)
    local oldest, after = -1, '-inf'
    for _ = 1, PRIORITIES do
        local first = redis.call('ZRANGEBYSCORE', prefix .. key, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if not first[1] then
            break
        end
        oldest = math.max(oldest, waited_ms(load_job(id_of(first[1]))))
        after = '(' .. first[2]
    end
    return oldest
end

local function flat_totals(meta)
    local flat = {}
    for i, kind in ipairs(meta.minute > 0 and KINDS or {}) do
        flat[2 * i - 1], flat[2 * i] = kind, int(meta[kind])
    end
    return flat
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
return {
    meta.paused and 1 or 0,
    redis.call('ZCOUNT', prefix .. 'delayed', '-inf', int(now)),
    redis.call('ZCOUNT', prefix .. 'workers', int(now - alive_ms), '+inf'),
    int(math.max(oldest_ms('wait'), oldest_ms('grouped'))),
    flat_totals(meta),
}
