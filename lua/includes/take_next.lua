-- include: prefix, now, int, job_record, emit, add_to_wait, promote_due, recover_stalled, start_limit
-- Claims up to `slots` jobs for a worker, in the order that the design's page decides.
local DUE_AT_ONCE = 32
local STALLED_AT_ONCE = 8

local function claim_reply(job)
    header_of(job)
    return { job.id, job.def, int(job.created_at), job.lease, int(job.run), int(job.started), int(job.made or 0),
        int(job.stalled or 0), int(priority_of(job)), int(job.started_at), job.cancel or '', job.error or '',
        job.checkpoint or '' }
end

local function start_job(job, lease, worker, lease_ms)
    if job.started == nil then
        redis.call('ZREM', prefix .. 'deadlines', job.id)
    end
    job.state, job.lease, job.worker = 'active', lease, worker
    job.started, job.started_at, job.progress = (job.started or 0) + 1, now, nil
    job.preview = nil
    redis.call('ZADD', prefix .. 'active', int(now + lease_ms), job.id)
    emit(job, 'active', ',"prev":"waiting","worker":' .. cjson.encode(worker))
    save_job(job)
end

-- Returns the claims, and for how many ms a worker may sleep at most (-1: until it is woken).
local function take_next(meta, token, worker, lease_ms, slots, interval_ms)
    recover_stalled(meta, lease_ms, interval_ms, STALLED_AT_ONCE)
    promote_due(DUE_AT_ONCE)
    local allowed, limited_ms = allowance(meta, slots)
    local claims = {}
    if allowed > 0 then
        local popped = redis.call('ZPOPMIN', prefix .. 'wait', allowed)
        for i = 1, #popped, 2 do
            local job = load_job(id_of(popped[i]))
            start_job(job, token .. '.' .. int(#claims + 1), worker, lease_ms)
            claims[#claims + 1] = job
        end
        count_starts(meta, #claims)
    end
    local sleep_ms = limited_ms or next_due_ms() or -1
    -- One wake-up leads to the next while work can start; a full or limited queue wakes nobody.
    if (#claims > 0 or slots == 0) and not limited_ms and redis.call('EXISTS', prefix .. 'wait') == 1 then
        wake_worker()
    end
    return claims, sleep_ms
end
