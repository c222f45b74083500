-- include: prefix, now, job_record, count_up
-- For how long a job has waited: since its newest event.
local function waited_ms(job)
    return math.max(now - tonumber(string.match(newest_event(job), '^%d+')), 0)
end

local function count_start(job)
    count_up('started')
    count_up('wait_ms', waited_ms(job))
end
