-- include: prefix, int, job_record, add_to_wait, emit, finish_job, leave_active, children, count_up
-- A job whose worker was lost: back to its old place, or its end when that happened too often.
local LOST_WORKER = '{"kind":"stalled","message":"the worker was lost more often than max_stalled allows"}'

local function recover_job(job)
    leave_active(job)
    job.stalled = (job.stalled or 0) + 1
    count_up('stalled')
    emit(job, 'stalled', ',"stalled":' .. int(job.stalled))
    if job.cancel then
        cancel_finished(job, '{"stalled":true}')
    elseif job.failed_child then
        fail_finished(job, 'child', job.failed_child)
    elseif job.stalled > (header_of(job).m or 1) then
        fail_finished(job, 'stalled', LOST_WORKER)
    else
        if not wait_for_children(job, 'active') then
            add_to_wait(job)
            emit(job, 'waiting', ',"prev":"active"')
        end
        save_job(job)
    end
    wake_worker() -- also an end frees a slot of the global concurrency
end
