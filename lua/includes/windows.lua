-- include: prefix, now, int
-- True sliding windows: a list keeps the last `max` start times, and a start is allowed when the max-th last is old
-- enough. Never more than `max` in any window of `duration`, wherever it begins.

-- How many of `wish` may start now, and in how many ms the next one may.
local function window_allows(key, max, duration, wish)
    for start = 1, wish do
        local past = start > max and now or tonumber(redis.call('LINDEX', prefix .. key, max - start) or 0)
        if now - past < duration then
            return start - 1, past + duration - now
        end
    end
    return wish, nil
end

local function count_in_window(key, max, duration, starts)
    for _ = 1, starts do
        redis.call('LPUSH', prefix .. key, int(now))
    end
    redis.call('LTRIM', prefix .. key, 0, max - 1)
    redis.call('PEXPIRE', prefix .. key, int(duration))
end
