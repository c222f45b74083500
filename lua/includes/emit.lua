-- include: prefix, now, int, job_record, read_meta, history
-- One event, under one id, to the stream, the job's history, the live channel and (where asked for) the outbox.
local MAX_ENTRIES, MAX_FULL_ENTRIES = '10000', '2500' -- of the stream; the latter where calls fill entries
local PROGRESS_TO_OUTBOX_MS = 500
local MOST_TOGETHER = 8 -- events of an entry

local untold = {} -- by queue: a call's events, told at its end

-- Those that are not in the stream yet, as one entry; its id is that of its last event. Returns their texts.
local function write_entry(queue, told)
    local texts, key = told.texts, queue .. 'events'
    local most = #texts - told.written == MOST_TOGETHER and MAX_FULL_ENTRIES or MAX_ENTRIES
    local text = #texts == 1 and texts[1] or table.concat(texts, '\n', told.written + 1)
    local reply = redis.pcall('XADD', key, 'MAXLEN', '~', most, told.id, 'e', text)
    if type(reply) == 'table' and reply.err then -- somebody else wrote to the stream, with a later id: we go on there
        told.id = redis.call('XADD', key, 'MAXLEN', '~', most, '*', 'e', text)
        note_event_id(read_metas[queue], told.id)
    end
    told.written = #texts
    return text
end

-- Ids are counted in `meta` as the server counts them: by its clock, which here never goes back.
-- Returns the id, and its two numbers.
local function publish(text)
    local meta, told = queue_meta(), untold[prefix]
    local ms, number = now, 0
    if meta.event_ms >= now and meta.event_number < MOST_IN_A_MS then
        ms, number = meta.event_ms, meta.event_number + 1
    elseif meta.event_ms >= now then
        ms = meta.event_ms + 1
    end
    meta.event_ms, meta.event_number, meta.is_changed = ms, number, true
    local id = int(ms) .. '-' .. int(number)
    if not told then
        told = { id = id, texts = { text }, written = 0 }
        untold[prefix] = told
        return id, ms, number
    end
    local count = #told.texts + 1
    told.id, told.texts[count] = id, text
    if count - told.written == MOST_TOGETHER then
        write_entry(prefix, told)
    end
    return id, ms, number
end

-- The channel gets them in one message, which reads like an entry: the last one's id, and a line for each.
local function tell_watchers()
    for queue, told in next, untold do
        local is_one_entry, text = told.written == 0, nil
        if #told.texts > told.written then
            text = write_entry(queue, told)
        end
        redis.call('PUBLISH', queue .. 'live', told.id .. '\n' .. (is_one_entry and text
            or table.concat(told.texts, '\n')))
        untold[queue] = nil
    end
end
AT_END.emit = tell_watchers

-- An event of the queue: in no job's history. `fields` begins with a comma or is empty.
local function emit_queue_event(event_type, fields)
    return publish('{"type":"' .. event_type .. '","at":' .. int(now) .. fields .. '}')
end

-- Where the queue's subscriptions or the job itself ask for it.
local function tell_relay(job, event_type, event_id, text)
    local by_job, by_all = job.notify, queue_meta().notify
    if not (by_job or by_all) then
        return
    end
    local wanted = ' ' .. (by_job or '') .. ' ' .. (by_all or '') .. ' '
    if not string.find(wanted, ' ' .. event_type .. ' ', 1, true) then
        return
    end
    if event_type == 'progress' then
        if now - (job.told_at or 0) < PROGRESS_TO_OUTBOX_MS then
            return
        end
        job.told_at = now
    end
    redis.call('XADD', prefix .. 'outbox', '*', 'id', event_id, 'event', text, 'job', job.id, 'data', data_of(job))
end

local function tell(job, event_type, fields)
    job.seq = job.seq + 1
    local text = event_text(job, event_type, now, job.seq, fields)
    local event_id = publish(text)
    tell_relay(job, event_type, event_id, text)
    return event_id, text
end

-- An event of a job. The caller saves the job afterwards: emit counts `seq` in it.
local function emit(job, event_type, fields)
    settle_history(job)
    local event_id, text = tell(job, event_type, fields)
    add_entry(job, event_id .. ' ' .. text)
end

local function emit_start(job)
    if job.seq > 1 then
        emit(job, 'active', start_fields(job))
    else
        job.began = tell(job, 'active', start_fields(job))
    end
end

-- That it completed or failed.
local function emit_end(job)
    job.ended = tell(job, job.state, end_fields(job))
end
