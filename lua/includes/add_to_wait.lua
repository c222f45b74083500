-- include: prefix, int, job_record, read_meta, groups, gather
-- Puts a job among the waiting, or the delayed, and takes it out again.
-- Its sequence is its place: FIFO counts up from 2^52, LIFO down.
local MIDDLE = 4503599627370496

local function wait_member(job)
    return string.format('%016x', job.sequence) .. ':' .. job.id
end

local function id_of(member)
    return string.sub(member, 18)
end

local function new_sequence(job)
    local header, meta = header_of(job), queue_meta()
    local count = meta.sequence + 1
    meta.sequence, meta.is_changed = count, true
    job.sequence = header.l and MIDDLE - count or MIDDLE + count
    if header.g or header.bk then
        job.entered_at = now
    end
end

local function wake_worker()
    local meta = queue_meta()
    if not meta.is_woken and not meta.paused then
        redis.call('ZADD', prefix .. 'marker', 0, '0')
    end
    meta.is_woken = true -- once is enough for all jobs of a call
end

local function add_to_wait(job)
    job.state, job.due_at = 'waiting', nil
    local header, member = header_of(job), wait_member(job)
    if not header.g then
        job.ungrouped = queue_meta().fair_ungrouped
        job.entered_at = job.ungrouped and (job.entered_at or now) or job.entered_at
    end
    if group_of(job) then
        enter_group(job, group_of(job), member)
    else
        enter_set('wait', priority_of(job), member)
    end
    if header.bk then
        redis.call('ZADD', prefix .. 'batch:' .. header.bk, int(priority_of(job)), member)
    end
    wake_worker()
end

local function add_to_delayed(job, due_at)
    job.state, job.due_at = 'delayed', due_at
    redis.call('ZADD', prefix .. 'delayed', int(due_at), wait_member(job))
    if redis.call('ZRANK', prefix .. 'delayed', wait_member(job)) == 0 then
        wake_worker() -- it is due before what the sleeping ones know of
    end
end

-- Takes a job out of the waiting ones.
local function leave_wait(job)
    local member, gid = wait_member(job), group_of(job)
    if gid then
        leave_group(gid, member)
    else
        settle_set('wait')
        redis.call('ZREM', prefix .. 'wait', member)
    end
    if job.batch_key then
        redis.call('ZREM', prefix .. 'batch:' .. job.batch_key, member)
    end
end
