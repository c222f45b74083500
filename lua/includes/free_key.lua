-- include: prefix, int, job_record, emit, dedup_key, store_job
-- The end of a job's hold on its deduplication key. A key without a time of its own goes with its job, and the job that
-- was kept for later takes its place.
local function store_next(name)
    local key = prefix .. 'dedup_next:' .. name
    local kept = redis.call('HMGET', key, 'token', 'id', 'header', 'data')
    if not kept[1] then
        return
    end
    redis.call('DEL', key)
    if load_job(kept[2]) then -- another call has made this id in the meantime
        emit_queue_event('duplicated', ',"job":"' .. kept[2] .. '"')
        return
    end
    store_job(queue_meta(), kept[1], kept[2], kept[3], kept[4])
end

local function free_key(job)
    local dd = options_of(job).dd
    if not dd then
        return
    end
    local key = prefix .. 'dedup:' .. dd.i
    if redis.call('GET', key) ~= job.id then
        return
    end
    if dd.t then
        redis.call('SET', key, job.id .. ' ' .. job.state .. ' ' .. int((birth_of(job))), 'KEEPTTL')
    else
        redis.call('DEL', key)
        store_next(dd.i)
    end
end
