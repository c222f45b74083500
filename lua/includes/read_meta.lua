-- include: prefix
-- The queue's own record. Returns it, or nil and the error to answer with.
local LAYOUT = '4.0'

-- An id before all events of this life of the queue, for readers who come before the first one: that may get the very
-- millisecond of the epoch.
local function id_before_all(meta)
    return meta.epoch and string.format('%.0f-0', meta.epoch - 1) or '0-0'
end

local function refuse_layout(layout)
    if layout and string.match(layout, '^%d+') ~= string.match(LAYOUT, '^%d+') then
        return redis.error_reply('LAYOUT_MISMATCH the data are of layout ' .. layout
            .. ', this version reads ' .. LAYOUT)
    end
end

-- One field, for who needs no other: at half the price. Returns it, or nil and the error.
local function read_field(name)
    local values = redis.call('HMGET', prefix .. 'meta', 'layout', name)
    return values[2] or nil, refuse_layout(values[1])
end

local read_metas = {}

local function read_meta()
    local flat = redis.call('HGETALL', prefix .. 'meta')
    local meta = {}
    for i = 1, #flat, 2 do
        meta[flat[i]] = flat[i + 1]
    end
    local refusal = refuse_layout(meta.layout)
    if refusal then
        return nil, refusal
    end
    read_metas[prefix] = meta
    return meta, nil
end

-- The record that `read_meta` has read, for includes; who changes the stored one changes it too.
local function queue_meta()
    return read_metas[prefix]
end

local meta_changes = {} -- by queue: fields that a call writes at its end, in one command

local function set_meta(field, text)
    local fields = meta_changes[prefix]
    if not fields then
        fields = {}
        meta_changes[prefix] = fields
    end
    fields[field], queue_meta()[field] = text, text
end

local function write_metas()
    for queue, fields in pairs(meta_changes) do
        local flat = {}
        for field, text in pairs(fields) do
            local at = #flat
            flat[at + 1], flat[at + 2] = field, text
        end
        redis.call('HSET', queue .. 'meta', unpack(flat))
    end
    read_metas, meta_changes = {}, {}
end
AT_END.read_meta = write_metas
