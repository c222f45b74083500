-- include: prefix, int
-- The mutable record of a job: read whole, changed as a table, written back where it changed.
-- Short field names keep the hash a listpack; this is the only place that knows them.
local FIELD = {
    state = 's', run = 'r', added = 'e', token = 'k', sequence = 'q', priority = 'p', due_at = 'u',
    started = 'n', made = 'm', stalled = 't', lease = 'l', worker = 'w', seq = 'v',
    started_at = 'a', finished_at = 'z', expires_at = 'x', progress = 'g', reported = 'i', told_at = 'o',
    entered_at = 'sg', ungrouped = 'ug', affinity_key = 'ak', batch_key = 'bk', passed_at = 'pt',
    cancel = 'c', cancel_at = 'j', reason = 'y', error = 'f', result = 'd', notify = 'b', born = 'h', preview = 'pv',
    children = 'ch', completed_children = 'cd', ignored_children = 'ci', failed_child = 'fd', continued = 'cn',
    delay_after = 'dl', checkpoint = 'cp', stack = 'sk',
}
local NUMBER = {
    run = true, sequence = true, priority = true, due_at = true, started = true, made = true, stalled = true,
    seq = true, started_at = true, finished_at = true, expires_at = true, reported = true, told_at = true,
    cancel_at = true, entered_at = true, passed_at = true,
    children = true, completed_children = true, ignored_children = true, delay_after = true,
}
local NAME = {}
for name, field in pairs(FIELD) do
    NAME[field] = name
end

local function load_job(id)
    local flat = redis.call('HGETALL', prefix .. 'state:' .. id)
    if #flat == 0 then
        return nil
    end
    local job, stored = { id = id }, {}
    for i = 1, #flat, 2 do
        local name, value = NAME[flat[i]], flat[i + 1]
        if NUMBER[name] then
            value = tonumber(value)
        end
        job[name], stored[name] = value, value
    end
    job.stored = stored
    return job
end

local function save_job(job)
    local changed, gone = {}, {}
    for name, field in pairs(FIELD) do
        local value = job[name]
        if value == nil then
            if job.stored[name] ~= nil then
                gone[#gone + 1] = field
            end
        elseif value ~= job.stored[name] then
            changed[#changed + 1] = field
            changed[#changed + 1] = NUMBER[name] and int(value) or value
        end
        job.stored[name] = value
    end
    local key = prefix .. 'state:' .. job.id
    if #changed > 0 then
        redis.call('HSET', key, unpack(changed))
    end
    if #gone > 0 then
        redis.call('HDEL', key, unpack(gone))
    end
end

-- The definition, read at most once: its first line is the header, its second the data.
local function header_of(job)
    if not job.header then
        local stored = redis.call('HMGET', prefix .. 'job:' .. job.id, 'def', 'at')
        local line = string.find(stored[1], '\n', 1, true)
        job.def, job.created_at = stored[1], tonumber(stored[2])
        job.header, job.data = cjson.decode(string.sub(stored[1], 1, line - 1)), string.sub(stored[1], line + 1)
    end
    return job.header
end

local function priority_of(job)
    return job.priority or header_of(job).p or 0
end

local UNGROUPED = '*' -- the group of the jobs without a group, where the queue treats them as one

local function group_of(job)
    return job.ungrouped and UNGROUPED or header_of(job).g
end
