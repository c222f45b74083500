-- include: int, store_job, deduplicate, link_child
-- The jobs that a call brings, three arguments each: what an earlier call came to, and storing one.
local function new_jobs(token, args, first)
    local jobs, keys = {}, {}
    for i = first, #args, 3 do
        local k = #jobs + 1
        jobs[k] = { token = token .. '.' .. int(k), id = args[i], header_json = args[i + 1], data = args[i + 2],
            header = cjson.decode(args[i + 1]) }
        keys[2 * k - 1], keys[2 * k] = prefix .. 'state:' .. args[i], prefix .. 'gone:' .. args[i]
    end
    jobs.are_new = redis.call('EXISTS', unpack(keys)) == 0 -- as nearly always: one question for all
    return jobs
end

-- What this call was told of the job the first time it came, or that another made its id; nil = the job is new.
local function answer_before(jobs, job)
    local told = job.header.dd and told_before(job.token, job.header)
    if told or jobs.are_new and not (was_written or unsaved[prefix .. 'state:' .. job.id]) then
        return told or nil -- nor did this call make it
    end
    return answer_again(job.token, job.id)
end

local function store_new(meta, job)
    local reply = store_job(meta, job.token, job.id, job.header_json, job.data, job.header)
    if job.header.pa then
        link_child(job.header.pa, job.id)
    end
    return reply
end
