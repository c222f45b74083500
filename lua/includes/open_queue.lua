-- include: read_meta, now
-- `epoch` is when this life of the queue began: with its first job or setting.
local function open_queue(meta)
    if meta.epoch == 0 then
        meta.epoch, meta.is_changed = now, true
    end
end
