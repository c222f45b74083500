-- include: read_meta, now, int
-- Writes the queue's record at its first use; `epoch` is when this life of the queue began.
local function open_queue(meta)
    if not meta.layout then
        meta.layout, meta.epoch = LAYOUT, int(now)
        redis.call('HSET', prefix .. 'meta', 'layout', meta.layout, 'epoch', meta.epoch)
    end
end
