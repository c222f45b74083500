-- include: prefix, int, job_record
-- The texts of a job's events, and its history. `added`, the first start and the last end are told again from the
-- definition and the record, which keeps their ids; only of a job that has more events is there a list of these.
local MAX_HISTORY = 4000
local TRIM_HISTORY = 200
local MAX_EVENT_RESULT = 2048
local MOST_QUOTED = 100
local QUOTES, QUOTED = {}, 0 -- events tell of the same few names

local function quoted(text)
    local quote = QUOTES[text]
    if not quote then
        if QUOTED == MOST_QUOTED then
            QUOTES, QUOTED = {}, 0
        end
        quote = cjson.encode(text)
        QUOTES[text], QUOTED = quote, QUOTED + 1
    end
    return quote
end

local function event_text(job, event_type, at, seq, fields)
    return '{"type":"' .. event_type .. '","job":"' .. job.id .. '","at":' .. int(at) .. ',"run":' .. int(job.run)
        .. ',"attempt":' .. int(job.started or 0) .. ',"seq":' .. int(seq) .. fields .. '}'
end

local function added_text(job, created_at)
    local header = header_of(job)
    local fields = ',"state":"waiting"'
    if header.ch then
        fields = ',"state":"waiting-children"'
    elseif header.d then
        fields = ',"state":"delayed","due_at":' .. int(created_at + header.d)
    end
    local first = { id = job.id, run = 1 }
    return event_text(first, 'added', created_at, 1,
        fields .. ',"name":' .. quoted(header.n) .. ',"priority":' .. int(header.p or 0))
end

local function start_fields(job)
    return ',"prev":"waiting","worker":' .. quoted(job.worker)
end

-- Of a job that completed or failed.
local function end_fields(job)
    local fields
    if job.state == 'completed' then
        fields = ',"started_at":' .. int(job.started_at)
    else
        fields = ',"reason":"' .. job.reason .. '","error":' .. job.error .. ',"attempts_made":' .. int(job.made or 0)
            .. ',"attempts":' .. int(header_of(job).a or 1)
    end
    if job.result and #job.result > MAX_EVENT_RESULT then
        fields = fields .. ',"result_bytes":' .. int(#job.result)
    elseif job.result then
        fields = fields .. ',"result":' .. job.result
    end
    return job.expires_at and fields .. ',"expires_at":' .. int(job.expires_at) or fields
end

-- What the record tells: in order, around the list.
local function begin_entry(job)
    return job.began and job.began .. ' ' .. event_text(job, 'active', job.started_at, 2, start_fields(job))
end

local function end_entry(job)
    return job.ended and job.ended .. ' ' .. event_text(job, job.state, job.finished_at, job.seq, end_fields(job))
end

local function add_entry(job, entry)
    local history = prefix .. 'log:' .. job.id
    if redis.call('RPUSH', history, entry) >= MAX_HISTORY + TRIM_HISTORY then
        redis.call('LTRIM', history, -MAX_HISTORY, -1) -- endless steps; the gap shows in `seq`
    end
end

-- Puts into the list what the record tells: before it tells something else, and before another event.
local function settle_history(job)
    if job.began then
        add_entry(job, begin_entry(job))
    end
    if job.ended then
        add_entry(job, end_entry(job))
    end
    job.began, job.ended = nil, nil
end

local function newest_event_id(job)
    local id = job.ended or job.began
    if id then
        return id
    elseif job.seq > 1 then
        return string.match(redis.call('LINDEX', prefix .. 'log:' .. job.id, -1), '^[^ ]+')
    end
    local _, added = birth_of(job)
    return added
end
