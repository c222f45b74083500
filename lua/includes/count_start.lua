-- include: prefix, now, job_record, history, count_up
-- For how long a job has waited: since its newest event.
local function waited_ms(job)
    local since = job.seq == 1 and birth_of(job) or tonumber(string.match(newest_event_id(job), '^%d+'))
    return math.max(now - since, 0)
end

local function count_start(job)
    count_up('started')
    count_up('wait_ms', waited_ms(job))
end
