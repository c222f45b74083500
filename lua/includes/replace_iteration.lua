-- include: prefix, run_schedules, remove_record
-- An iteration that has not started goes with its schedule, or gives way to one of a newer template.
local function remove_iteration(schedule)
    local job = unstarted_iteration(schedule)
    if job then
        remove_record(job)
    end
    return job
end

local function replace_iteration(meta, schedule)
    local job = remove_iteration(schedule)
    if job then
        store_iteration(meta, schedule, job.id)
    end
end
