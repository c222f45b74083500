-- include: prefix, now, windows, gather
-- How many jobs may start now: pause, manual limit, global concurrency, and the windows of the queue and of the worker.
-- Each limit keeps its own scope, and the strictest wins.

-- Returns the number, in how many ms more may start (nil: not a matter of time), and whether the limit is the worker's.
local function allowance(meta, wish, worker, limiter)
    if meta.paused then
        return 0, nil, false
    end
    if meta.limited_until and tonumber(meta.limited_until) > now then
        return 0, tonumber(meta.limited_until) - now, false
    end
    if meta.concurrency then
        settle_set('active')
        wish = math.max(math.min(wish, tonumber(meta.concurrency) - redis.call('ZCARD', prefix .. 'active')), 0)
    end
    local allowed, limited_ms = wish, nil
    if meta.rate_max then
        allowed, limited_ms = window_allows('rate', tonumber(meta.rate_max), tonumber(meta.rate_ms), wish)
    end
    if limiter then
        local mine, mine_ms = window_allows('rate:' .. worker, limiter[1], limiter[2], wish)
        if mine < allowed then
            return mine, mine_ms, true
        end
        limited_ms = limited_ms and mine_ms and math.max(limited_ms, mine_ms) or limited_ms
    end
    return allowed, limited_ms, false
end

local function count_starts(meta, starts, worker, limiter)
    if starts == 0 then
        return
    end
    if meta.rate_max then
        count_in_window('rate', tonumber(meta.rate_max), tonumber(meta.rate_ms), starts)
    end
    if limiter then
        count_in_window('rate:' .. worker, limiter[1], limiter[2], starts)
    end
end
