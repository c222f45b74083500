-- include: prefix, int, job_record
-- Who holds a deduplication key: its value is the holder's id, or, when the key outlives its job,
-- `<id> <state> <created_at>`.
local function key_holder(name)
    local value = redis.call('GET', prefix .. 'dedup:' .. name)
    if not value then
        return nil
    end
    local id, state, created_at = string.match(value, '^(%S+) (%S+) (%d+)$')
    if id then
        return { id = id, state = state, created_at = tonumber(created_at), has_ended = true }
    end
    local job = load_job(value) -- nil: its record vanished, so nobody holds the key
    if job then
        job.created_at = birth_of(job)
    end
    return job
end

-- The key is the job's from now on; its time goes on where it is running, unless each add extends it.
local function hold_key(job)
    local dd, key = job.header.dd, prefix .. 'dedup:' .. job.header.dd.i
    if not dd.t then
        redis.call('SET', key, job.id)
    elseif dd.e or redis.call('PTTL', key) < 0 then
        redis.call('SET', key, job.id, 'PX', int(dd.t))
    else
        redis.call('SET', key, job.id, 'KEEPTTL')
    end
end

-- For a new run: the key again if it is free, or was this job's all the time.
local function hold_key_again(job)
    local dd = header_of(job).dd
    if not dd then
        return
    end
    local holder = key_holder(dd.i)
    if not holder or holder.id == job.id then
        hold_key(job)
    end
end
