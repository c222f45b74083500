-- include: prefix, add_to_wait
-- Takes a job that does not run out of the set it waits in.
local function leave_place(job)
    if job.state == 'waiting' then
        leave_wait(job)
    elseif job.state == 'delayed' then
        redis.call('ZREM', prefix .. 'delayed', wait_member(job))
    else
        redis.call('ZREM', prefix .. 'waiting_children', job.id)
    end
end

local function leave_waiting(job)
    leave_place(job)
    redis.call('ZREM', prefix .. 'deadlines', job.id)
end
