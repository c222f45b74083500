-- include: prefix, leave_waiting, end_record, free_key, children
-- The one way out for a job that stops without running (removed, replaced, drained, cleaned): out of its set, its keys
-- and files given up, told as `removed` (of the queue). Never an active one.
local function take_out(job)
    if job.finished_at then
        leave_state(job.id, job.state)
    else
        leave_waiting(job)
    end
    end_record(job)
    emit_removed(job)
    free_key(job)
end

-- A parent that waited for it waits no more.
local function remove_record(job)
    take_out(job)
    tell_parent(job, drop_child)
end
