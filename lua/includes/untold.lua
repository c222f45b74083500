-- include: prefix, now, job_record, emit, in_queue, descendants, leave_waiting, finish_job
-- Telling a family that it is canceled, in steps: `untold:<root>` lists those below the root who have not been told,
-- each as `<queue>:<id> <its parent's queue>:<id>`; `untold` says for each root what they are told.
local MOST_PUSHED = 1000
local TOLD_AT_ONCE = 25 -- 50 were seen to take 5 ms, and no script may take longer

local function cancel_one(job, cancel)
    if job.state ~= 'active' then
        leave_waiting(job)
        job.cancel, job.cancel_at = cancel, now
        cancel_finished(job, '{}')
    elseif not job.cancel then
        job.cancel, job.cancel_at = cancel, now
        emit(job, 'canceling', ',"cancel":' .. cancel)
        save_job(job)
        redis.call('PUBLISH', prefix .. 'control', 'cancel ' .. job.id)
    end
end

-- Its children come on the list before it is told: with its end its record may go, and what it knew of them.
local function list_children(list, job)
    local names = job.children and redis.call('HKEYS', prefix .. 'children:' .. job.id) or {}
    for i, name in ipairs(names) do
        names[i] = name .. ' ' .. queue_name() .. ':' .. job.id
    end
    for first = 1, #names, MOST_PUSHED do
        redis.call('RPUSH', list, unpack(names, first, math.min(first + MOST_PUSHED - 1, #names)))
    end
end

local function tell_one(list, cancel, id, parent_queue, parent_id)
    local job = child_of(id, parent_queue, parent_id)
    if job then
        list_children(list, job)
        if not job.finished_at then
            cancel_one(job, cancel)
        end
    end
end

-- Parents before children: what those come to changes a canceled parent no more. Returns how many are left.
local function tell_untold(root_id, most)
    local list, cancel = prefix .. 'untold:' .. root_id, redis.call('HGET', prefix .. 'untold', root_id)
    for _, entry in ipairs(cancel and redis.call('LPOP', list, most) or {}) do
        local queue, id, parent_queue, parent_id = string.match(entry, '^([^:]+):(%S+) ([^:]+):(.+)$')
        in_queue(queue, tell_one, list, cancel, id, parent_queue, parent_id)
    end
    local left = redis.call('LLEN', list)
    if left == 0 then
        redis.call('HDEL', prefix .. 'untold', root_id)
    end
    return left
end
