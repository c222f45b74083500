-- include: prefix, now, int
-- Why a queue takes no more jobs: nil, or the error to answer with.
local function refuse_closing(meta)
    if meta.closing_until and tonumber(meta.closing_until) > now then
        return redis.error_reply('QUEUE_FULL the queue is being obliterated')
    end
end

local function refuse_outbox(outbox_max)
    if redis.call('XLEN', prefix .. 'outbox') >= outbox_max then
        return redis.error_reply('QUEUE_FULL the outbox holds ' .. int(outbox_max) .. ' undelivered events')
    end
end

-- max_waiting counts all jobs that have yet to start, delayed ones too: it bounds the memory that they take.
local function refuse_waiting(meta, more)
    if not meta.max_waiting then
        return nil
    end
    local held = redis.call('ZCARD', prefix .. 'wait') + redis.call('ZCARD', prefix .. 'delayed')
    if held + more > tonumber(meta.max_waiting) then
        return redis.error_reply('QUEUE_FULL ' .. int(held) .. ' jobs wait or are delayed; with ' .. int(more)
            .. ' more there would be more than the ' .. meta.max_waiting .. ' that max_waiting allows')
    end
end
