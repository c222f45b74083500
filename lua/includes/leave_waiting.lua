-- include: prefix, add_to_wait
-- Takes a job that does not run out of the set it waits in.
local function leave_place(job)
    if job.state == 'waiting-children' then
        redis.call('ZREM', prefix .. 'waiting_children', job.id)
    else
        redis.call('ZREM', prefix .. (job.state == 'delayed' and 'delayed' or 'wait'), wait_member(job))
    end
end

local function leave_waiting(job)
    leave_place(job)
    redis.call('ZREM', prefix .. 'deadlines', job.id)
end
