-- include: prefix, int, answer, emit, dedup_key, remove_record, store_job, refuse_add
-- An add under a deduplication key that another job holds: it replaces a delayed one, is kept for later, or dropped.

-- What this call was told the first time it came.
local function told_before(token, header)
    local memo = header.dd and answered(token)
    return memo and string.match(memo, '^deduplicated .+$')
end

local function emit_deduplicated(name, kept, dropped)
    emit_queue_event('deduplicated', ',"job":"' .. kept .. '","deduplication_id":"' .. name
        .. '","deduplicated_job":"' .. dropped .. '"')
end

local function is_replaceable(holder, dd)
    return dd.r and holder.state == 'delayed' and not holder.has_ended
end

-- The answer to the add, or nil when its job is to be stored.
local function deduplicate(meta, token, id, header_json, data, header)
    local dd = header.dd
    local key, next_key = prefix .. 'dedup:' .. dd.i, prefix .. 'dedup_next:' .. dd.i
    local holder = key_holder(dd.i)
    if not holder then
        redis.call('DEL', key, next_key)
        return nil
    end
    if is_replaceable(holder, dd) then
        local full = refuse_group(header.g, 1) -- the queue needs no more room, but its group may
        if full then
            return full
        end
        redis.call('DEL', next_key)
        take_out(holder) -- it has no parent
        emit_deduplicated(dd.i, id, holder.id)
        return store_job(meta, token, id, header_json, data, header)
    end
    if dd.e then -- only a key that has a time: another lasts as its job, or whoever is kept back for it is lost
        redis.call('PEXPIRE', key, int(dd.t), 'XX')
    end
    if dd.k and redis.call('PTTL', key) == -1 and (holder.state == 'active' or redis.call('EXISTS', next_key) == 1) then
        redis.call('HSET', next_key, 'token', token, 'id', id, 'header', header_json, 'data', data)
    end
    emit_deduplicated(dd.i, holder.id, id)
    return answer(token, reply_met('deduplicated', holder.state, holder.created_at, holder.id))
end
