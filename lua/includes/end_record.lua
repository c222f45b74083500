-- include: prefix, now, int, job_record, history, emit
-- The end of a job's record, whatever brought it: a tombstone stays for 60 s, so that a repeated call still knows.
local TOMBSTONE_MS = 60000
local FINISHED = { 'completed', 'failed', 'canceled' }

-- Where the adopted pictures of a completed job lie in the storage.
local function files_of(job)
    if job.state == 'completed' and options_of(job).f then
        return job.id .. '/' .. int(job.run) .. '-' .. job.lease
    end
end

local function leave_state(id, state)
    redis.call('ZREM', prefix .. state, id)
    redis.call('ZREM', prefix .. 'expires:' .. state, id)
    if state == 'failed' then
        redis.call('ZREM', prefix .. 'dead', id)
    end
end

-- An id that is used again leaves the sets its former record, gone by TTL, may still stand in.
local function leave_past(id)
    local meta = queue_meta()
    if meta.has_past == nil then -- as of the call's begin
        meta.has_past = redis.call('EXISTS', prefix .. 'expires:completed', prefix .. 'expires:failed',
            prefix .. 'expires:canceled') > 0
    end
    if not meta.has_past then
        return
    end
    for _, state in ipairs(FINISHED) do
        if redis.call('ZREM', prefix .. 'expires:' .. state, id) == 1 then
            leave_state(id, state)
        end
    end
end

local function set_tombstone(job, ended_at)
    local created_at, _, token = birth_of(job)
    redis.call('SET', prefix .. 'gone:' .. job.id, cjson.encode({
        token = token, state = job.state, run = job.run, seq = job.seq, event = newest_event_id(job),
        created_at = int(created_at),
    }), 'PXAT', int(ended_at + TOMBSTONE_MS))
end

local function tombstone_of(id)
    local text = redis.call('GET', prefix .. 'gone:' .. id)
    return text and cjson.decode(text)
end

local function end_record(job)
    write_texts()
    options_of(job) -- read while they are there: they say whom the end concerns
    local files = files_of(job)
    if files then
        redis.call('ZADD', prefix .. 'sweep', int(now), files)
    end
    set_tombstone(job, now)
    redis.call('DEL', prefix .. 'job:' .. job.id, prefix .. 'state:' .. job.id, prefix .. 'log:' .. job.id,
        prefix .. 'lines:' .. job.id, prefix .. 'preview:' .. job.id,
        prefix .. 'children:' .. job.id)
    job.is_gone = true
end

local function emit_removed(job)
    emit_queue_event('removed', ',"job":"' .. job.id .. '","prev":"' .. job.state .. '"')
end
