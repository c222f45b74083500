-- include: prefix, now, int
-- How many jobs may start now: pause, global concurrency, manual limit, and a true sliding window.
-- The window keeps the last `max` start times: a start is allowed when the max-th last is old enough.
local function allowance(meta, wish)
    if meta.paused then
        return 0, nil
    end
    if meta.limited_until and tonumber(meta.limited_until) > now then
        return 0, tonumber(meta.limited_until) - now
    end
    if meta.concurrency then
        wish = math.min(wish, tonumber(meta.concurrency) - redis.call('ZCARD', prefix .. 'active'))
    end
    if not meta.rate_max then
        return math.max(wish, 0), nil
    end
    local max, duration = tonumber(meta.rate_max), tonumber(meta.rate_ms)
    for start = 1, wish do
        local past = start > max and now or tonumber(redis.call('LINDEX', prefix .. 'rate', max - start) or 0)
        if now - past < duration then
            return start - 1, past + duration - now
        end
    end
    return math.max(wish, 0), nil
end

local function count_starts(meta, starts)
    if meta.rate_max and starts > 0 then
        for _ = 1, starts do
            redis.call('LPUSH', prefix .. 'rate', int(now))
        end
        redis.call('LTRIM', prefix .. 'rate', 0, tonumber(meta.rate_max) - 1)
        redis.call('PEXPIRE', prefix .. 'rate', meta.rate_ms)
    end
end
