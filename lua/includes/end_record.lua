-- include: prefix, now, int, job_record, emit
-- The end of a job's record, whatever brought it: a tombstone stays for 60 s, so that a repeated call still knows.
local TOMBSTONE_MS = 60000

-- Where the adopted pictures of a completed job lie in the storage.
local function files_of(job)
    if job.state == 'completed' and header_of(job).f then
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

local function last_event(job)
    local entry = job.last_event or redis.call('LINDEX', prefix .. 'log:' .. job.id, -1) or job.added
    return string.match(entry, '^[^ ]+')
end

local function end_record(job)
    local files = files_of(job)
    if files then
        redis.call('ZADD', prefix .. 'sweep', int(now), files)
    end
    redis.call('SET', prefix .. 'gone:' .. job.id, cjson.encode({
        token = job.token, state = job.state, run = job.run, seq = job.seq, event = last_event(job),
    }), 'PX', TOMBSTONE_MS)
    redis.call('DEL', prefix .. 'job:' .. job.id, prefix .. 'state:' .. job.id, prefix .. 'log:' .. job.id,
        prefix .. 'lines:' .. job.id, prefix .. 'preview:' .. job.id)
end

local function emit_removed(job)
    emit_queue_event('removed', ',"job":"' .. job.id .. '","prev":"' .. job.state .. '"')
end
