-- include: prefix, now, int, job_record, emit, end_record, gather
-- Retention by count: the oldest beyond the count end, oldest first. A finish ends a few; where there are more, `meta`
-- keeps the oldest that stays, and the duty that removes expired ones ends those before it.
local TRIM_AT_ONCE = 10

-- Ends at most `limit` of the oldest, until `excess` that had not ended by their TTL are gone; returns the excess left.
local function end_oldest(state, excess, limit)
    for _, id in ipairs(redis.call('ZRANGE', prefix .. state, 0, limit - 1)) do
        if excess <= 0 then
            break
        end
        leave_state(id, state)
        local old = load_job(id)
        if not old then
            emit_removed({ id = id, state = state })
        else
            excess = excess - 1
            if old.state == state then
                end_record(old)
                emit_removed(old)
            end
        end
    end
    return excess
end

-- How many are older than the job that `meta` keeps, which may be gone itself.
local function older_than(state, first)
    local score, id = string.match(first, '^(%d+) (.+)$')
    local rank = redis.call('ZRANK', prefix .. state, id)
    if not rank then
        redis.call('ZADD', prefix .. state, score, id)
        rank = redis.call('ZRANK', prefix .. state, id)
        redis.call('ZREM', prefix .. state, id)
    end
    return rank
end

local function leave_rest_to_duty(state, excess)
    local before = queue_meta()['trim_' .. state]
    if before and older_than(state, before) >= excess then
        return -- that leaves fewer
    end
    local first = redis.call('ZRANGE', prefix .. state, excess, excess, 'WITHSCORES')
    set_meta('trim_' .. state, int(tonumber(first[2])) .. ' ' .. first[1])
end

local function trim_to_count(state, count)
    write_sets()
    local ended = redis.call('ZCOUNT', prefix .. 'expires:' .. state, '-inf', int(now))
    local excess = redis.call('ZCARD', prefix .. state) - ended - count
    if excess <= 0 then
        return
    end
    local left = end_oldest(state, excess, math.min(excess + ended, TRIM_AT_ONCE))
    if left > 0 then
        leave_rest_to_duty(state, left)
    end
end

-- The duty's part; returns how many it looked at.
local function trim_rest(meta, state, limit)
    local first = meta['trim_' .. state]
    if not first then
        return 0
    end
    local excess = older_than(state, first)
    if excess <= limit then
        set_meta('trim_' .. state, nil)
    end
    end_oldest(state, excess, math.min(excess, limit))
    return math.min(excess, limit)
end
