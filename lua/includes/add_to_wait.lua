-- include: prefix, int, job_record
-- Puts a job among the waiting. Its sequence is its place: FIFO counts up from 2^52, LIFO down.
local MIDDLE = 4503599627370496

local function wait_member(job)
    return string.format('%016x', job.sequence) .. ':' .. job.id
end

local function id_of(member)
    return string.sub(member, 18)
end

local function new_sequence(job)
    local count = redis.call('HINCRBY', prefix .. 'meta', 'sequence', 1)
    job.sequence = header_of(job).l and MIDDLE - count or MIDDLE + count
end

local woken = {}

-- Once a script is enough: no other command runs in between.
local function wake_worker()
    if woken[prefix] then
        return
    end
    woken[prefix] = true
    if redis.call('HEXISTS', prefix .. 'meta', 'paused') == 0 then
        redis.call('ZADD', prefix .. 'marker', 0, '0')
    end
end

local function add_to_wait(job)
    job.state, job.due_at = 'waiting', nil
    redis.call('ZADD', prefix .. 'wait', int(priority_of(job)), wait_member(job))
    wake_worker()
end

local function add_to_delayed(job, due_at)
    job.state, job.due_at = 'delayed', due_at
    redis.call('ZADD', prefix .. 'delayed', int(due_at), wait_member(job))
    if redis.call('ZRANK', prefix .. 'delayed', wait_member(job)) == 0 then
        wake_worker() -- it is due before what the sleeping ones know of
    end
end
