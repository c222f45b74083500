-- include: prefix, now, job_record, count_up
-- For how long a job has waited: since its newest event, or its `added` if that is its only one.
local function waited_ms(job)
    local since = has_history(job) and redis.call('LINDEX', prefix .. 'log:' .. job.id, -1) or job.added
    return math.max(now - tonumber(string.match(since, '^%d+')), 0)
end

local function count_start(job)
    count_up('started')
    count_up('wait_ms', waited_ms(job))
end
