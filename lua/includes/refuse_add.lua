-- include: prefix, now, int, groups, gather
-- Why a queue takes no more jobs: nil, or the error to answer with.
local function is_closing(meta)
    return meta.closing_until and tonumber(meta.closing_until) > now
end

local function refuse_closing(meta)
    if is_closing(meta) then
        return redis.error_reply('QUEUE_FULL the queue is being obliterated')
    end
end

local function refuse_outbox(outbox_max)
    if redis.call('XLEN', prefix .. 'outbox') >= outbox_max then
        return redis.error_reply('QUEUE_FULL the outbox holds ' .. int(outbox_max) .. ' undelivered events')
    end
end

-- max_waiting counts all jobs that do not run and have not ended: it bounds the memory that they take.
local function held_jobs()
    settle_set('wait')
    return redis.call('ZCARD', prefix .. 'wait') + redis.call('ZCARD', prefix .. 'grouped')
        + redis.call('ZCARD', prefix .. 'delayed') + redis.call('ZCARD', prefix .. 'waiting_children')
end

local function has_places(meta, more)
    return not meta.max_waiting or held_jobs() + more <= tonumber(meta.max_waiting)
end

local function refuse_waiting(meta, more)
    if not has_places(meta, more) then
        return redis.error_reply('QUEUE_FULL ' .. int(held_jobs()) .. ' jobs wait or are delayed; with ' .. int(more)
            .. ' more there would be more than the ' .. meta.max_waiting .. ' that max_waiting allows')
    end
end

-- A group's max_waiting counts its waiting jobs.
local function refuse_group(gid, more)
    local most = gid and group_limit(load_group(gid), 'max_waiting')
    if not most then
        return nil
    end
    local held = redis.call('ZCARD', prefix .. 'group:' .. gid)
    if held + more > most then
        return redis.error_reply('GROUP_FULL ' .. int(held) .. ' jobs of group ' .. gid .. ' wait; with ' .. int(more)
            .. ' more there would be more than the ' .. int(most) .. ' that its max_waiting allows')
    end
end
