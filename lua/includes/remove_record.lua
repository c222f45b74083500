-- include: prefix, promote_due, end_record, free_key
-- The one way out for a job that stops without running (removed, replaced, drained, cleaned): out of its set, its keys
-- and files given up, told as `removed` (of the queue). Never an active one.
local function remove_record(job)
    if job.finished_at then
        leave_state(job.id, job.state)
    else
        leave_waiting(job)
    end
    end_record(job)
    emit_removed(job)
    free_key(job)
end
