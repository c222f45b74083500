-- include: prefix, now, int, job_record, read_meta
-- One event, under one id, to the stream, the job's history, the live channel and (where asked for) the outbox.
local MAX_ENTRIES, MAX_FULL_ENTRIES = '10000', '2500' -- of the stream; the latter where calls fill entries
local PROGRESS_TO_OUTBOX_MS = 500
local MAX_HISTORY = 4000
local TRIM_HISTORY = 200
local MAX_RECENT = 512 -- bytes
local MOST_TOGETHER = 8 -- events of an entry

local untold = {} -- by queue: a call's events, told at its end

local function write_entry(queue, told)
    local most = #told.texts == MOST_TOGETHER and MAX_FULL_ENTRIES or MAX_ENTRIES
    redis.call('XADD', queue .. 'events', 'MAXLEN', '~', most, told.ms .. '-' .. int(told.number), 'e',
        table.concat(told.texts, '\n'))
    told.texts = {}
end

-- A call's first event gets its id from the server, the others count on from there, since nothing comes in between.
-- Those stand in entries of several lines, whose id is that of the last line.
local function publish(text)
    local told = untold[prefix]
    local event_id
    if told then
        told.number = told.number + 1
        event_id = told.ms .. '-' .. int(told.number)
        told.texts[#told.texts + 1] = text
    else
        event_id = redis.call('XADD', prefix .. 'events', 'MAXLEN', '~', MAX_ENTRIES, '*', 'e', text)
        local ms, number = string.match(event_id, '^(%d+)%-(%d+)$')
        told = { ms = ms, number = tonumber(number), texts = {}, entries = {} }
        untold[prefix] = told
    end
    local entry = event_id .. ' ' .. text
    told.entries[#told.entries + 1] = entry
    if #told.texts == MOST_TOGETHER then
        write_entry(prefix, told)
    end
    return event_id, entry
end

local function tell_watchers()
    for queue, told in pairs(untold) do
        if #told.texts > 0 then
            write_entry(queue, told)
        end
        redis.call('PUBLISH', queue .. 'live', table.concat(told.entries, '\n'))
    end
    untold = {}
end
AT_END.emit = tell_watchers

-- An event of the queue: in no job's history. `fields` begins with a comma or is empty.
local function emit_queue_event(event_type, fields)
    return publish('{"type":"' .. event_type .. '","at":' .. int(now) .. fields .. '}')
end

local quotes = {} -- a call tells of the same few names

local function quoted(text)
    quotes[text] = quotes[text] or cjson.encode(text)
    return quotes[text]
end

local function event_text(job, event_type, at, seq, fields)
    return '{"type":"' .. event_type .. '","job":"' .. job.id .. '","at":' .. int(at) .. ',"run":' .. int(job.run)
        .. ',"attempt":' .. int(job.started or 0) .. ',"seq":' .. int(seq) .. fields .. '}'
end

-- `added` can be told again from the definition: so it is in no history.
local function added_text(job)
    local header = header_of(job)
    local fields = ',"state":"waiting"'
    if header.ch then
        fields = ',"state":"waiting-children"'
    elseif header.d then
        fields = ',"state":"delayed","due_at":' .. int(job.created_at + header.d)
    end
    local first = { id = job.id, run = 1 }
    return event_text(first, 'added', job.created_at, 1,
        fields .. ',"name":' .. quoted(header.n) .. ',"priority":' .. int(header.p or 0))
end

-- Whether the relay is to be told: the queue's subscriptions or the job itself ask for it.
local function is_wanted(job, event_type)
    local by_all = queue_meta().notify
    if not (by_all or job.notify) then
        return false
    end
    local wanted = ' ' .. (job.notify or '') .. ' ' .. (by_all or '') .. ' '
    return string.find(wanted, ' ' .. event_type .. ' ', 1, true)
end

local function tell_relay(job, event_type, event_id, text)
    if not is_wanted(job, event_type) then
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

-- Two short ones stand in the record, as many as most jobs ever have; what is more goes to the list with them.
local function remember_event(job, entry)
    local recent = job.recent
    if #entry <= MAX_RECENT and not (recent and string.find(recent, '\n', 1, true)) then
        job.recent = recent and recent .. '\n' .. entry or entry
        return
    end
    local entries = recent_events(job)
    entries[#entries + 1] = entry
    local history = prefix .. 'log:' .. job.id
    local length = redis.call('RPUSH', history, unpack(entries))
    job.recent = nil
    if length >= MAX_HISTORY + TRIM_HISTORY then
        redis.call('LTRIM', history, -MAX_HISTORY, -1) -- endless steps; the gap shows in `seq`
    end
end

-- An event of a job. The caller saves the job afterwards: emit counts `seq` in it.
local function emit(job, event_type, fields)
    job.seq = job.seq + 1
    local text = event_text(job, event_type, now, job.seq, fields)
    local event_id, entry = publish(text)
    remember_event(job, entry)
    tell_relay(job, event_type, event_id, text)
    job.last_event = event_id
    return event_id
end
