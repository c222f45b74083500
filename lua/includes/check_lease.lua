-- include: job_record
-- The job if this token still holds it, else nil: the fence against late and doubled workers.
local function check_lease(id, lease)
    local job = load_job(id)
    if job and job.state == 'active' and job.lease == lease then
        return job
    end
end
