-- include: prefix, save
-- The queue's own record, packed like a job's: the numbers that every queue has (HEAD), then a MessagePack map of texts
-- that only some have. 0 = nothing. It is written at the call's end where it `is_changed`.
-- This is the only place that knows how.
local LAYOUT = '5.0'
local MAJOR, MINOR = 5, 0
local MOST_IN_A_MS = 4294967295 -- events, by the width of their number in HEAD
local HEAD = '<BBI6I7I6I6I6I4I5I6I6I6I5I5I5I5I7I7'

local function unpack_meta(text)
    local major, minor, epoch, sequence, looked_at, grace_until, event_ms, event_number, minute, added, started,
        completed, failed, canceled, retried, stalled, wait_ms, run_ms, rest = struct.unpack(HEAD, text)
    local meta = {
        major = major, minor = minor, epoch = epoch, sequence = sequence, looked_at = looked_at,
        grace_until = grace_until, event_ms = event_ms, event_number = event_number, minute = minute, added = added,
        started = started, completed = completed, failed = failed, canceled = canceled, retried = retried,
        stalled = stalled, wait_ms = wait_ms, run_ms = run_ms,
        has_texts = rest <= #text, is_changed = false, is_woken = false, has_past = nil, -- of a call; nil keeps room
    }
    if meta.has_texts then
        for name, value in pairs(cmsgpack.unpack(string.sub(text, rest))) do
            meta[name] = value
        end
    end
    return meta
end

local function pack_meta(meta)
    local text = struct.pack(HEAD, meta.major, meta.minor, meta.epoch, meta.sequence, meta.looked_at, meta.grace_until,
        meta.event_ms, meta.event_number, meta.minute, meta.added, meta.started, meta.completed, meta.failed,
        meta.canceled, meta.retried, meta.stalled, meta.wait_ms, meta.run_ms)
    if not meta.has_texts then
        return text
    end
    local texts = {}
    for name, value in pairs(meta) do
        if type(value) == 'string' then
            texts[name] = value
        end
    end
    return next(texts) and text .. cmsgpack.pack(texts) or text
end

-- What XINFO tells of the stream of events: name → value; nil where there is none.
local function stream_info()
    if redis.call('EXISTS', prefix .. 'events') == 0 then
        return nil
    end
    local flat, info = redis.call('XINFO', 'STREAM', prefix .. 'events'), {}
    for i = 1, #flat, 2 do
        info[flat[i]] = flat[i + 1]
    end
    return info
end

-- The newest event's id, where it is not one that we have made.
local function note_event_id(meta, id)
    local ms, number = string.match(id, '^(%d+)%-(%d+)$')
    meta.event_ms, meta.event_number = tonumber(ms), math.min(tonumber(number), MOST_IN_A_MS)
end

-- Event ids go on where those of an earlier life ended, if its stream is still there.
local function new_meta()
    local meta = unpack_meta(struct.pack(HEAD, MAJOR, MINOR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    local info = stream_info()
    if info then
        note_event_id(meta, info['last-generated-id'])
    end
    return meta
end

local function refuse_layout(layout)
    return redis.error_reply('LAYOUT_MISMATCH the data are of layout ' .. layout .. ', this version reads ' .. LAYOUT)
end

-- Before layout 5 the record was a hash, which had no layout until the queue was used.
local function old_layout(key)
    return redis.call('EXISTS', key) == 1 and redis.call('HGET', key, 'layout')
end

local read_metas = {} -- by queue

-- Returns the record, or nil and the error to answer with.
local function read_meta()
    local key = prefix .. 'meta'
    local text = redis.call('MGET', key)[1] -- nothing, and no error, where layouts before 5 have a hash
    local old = not text and old_layout(key)
    if old then
        return nil, refuse_layout(old)
    elseif text and string.byte(text) ~= MAJOR then
        return nil, refuse_layout(string.format('%d.%d', string.byte(text, 1, 2)))
    end
    local meta = text and unpack_meta(text) or new_meta()
    read_metas[prefix] = meta
    return meta, nil
end

-- What `read_meta` has read, for includes.
local function queue_meta()
    return read_metas[prefix]
end

-- Sets one of the texts; nil takes it away.
local function set_meta(name, text)
    local meta = read_metas[prefix]
    meta[name], meta.has_texts, meta.is_changed = text, true, true
end

local function write_metas()
    for queue, meta in next, read_metas do
        if meta.is_changed then
            unsaved[queue .. 'meta'] = pack_meta(meta)
        end
        read_metas[queue] = nil
    end
end
AT_END.read_meta = write_metas

-- An id before all events of this life of the queue, for readers who come before the first one: that may get the very
-- millisecond of the epoch.
local function id_before_all(meta)
    return meta.epoch > 0 and string.format('%.0f-0', meta.epoch - 1) or '0-0'
end
