-- include: job_record, groups, gather
-- Takes a job out of `active`, with all that belongs to the attempt alone.
local function leave_active(job)
    leave_set('active', job.id)
    job.reported, job.told_at = nil, nil
    if queue_meta().grouped then
        leave_group_active(job)
    end
end
