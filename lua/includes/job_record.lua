-- include: prefix, int
-- The mutable record of a job: read whole, changed as a table, written back where it changed.
-- Short field names keep the hash a listpack; this is the only place that knows them.
local TEXTS = {
    'state', 's', 'added', 'e', 'token', 'k', 'lease', 'l', 'worker', 'w', 'progress', 'g', 'ungrouped', 'ug',
    'affinity_key', 'ak', 'batch_key', 'bk', 'cancel', 'c', 'reason', 'y', 'error', 'f', 'stack', 'sk', 'result', 'd',
    'notify', 'b', 'preview', 'pv', 'failed_child', 'fd', 'continued', 'cn', 'checkpoint', 'cp', 'plain', 'pl',
}
local NUMBERS = {
    'created_at', 'at', 'run', 'r', 'seq', 'v', 'sequence', 'q', 'priority', 'p', 'due_at', 'u', 'started', 'n',
    'made', 'm', 'stalled', 't', 'started_at', 'a', 'finished_at', 'z', 'expires_at', 'x', 'reported', 'i',
    'told_at', 'o', 'entered_at', 'sg', 'passed_at', 'pt', 'cancel_at', 'j', 'children', 'ch',
    'completed_children', 'cd', 'ignored_children', 'ci', 'delay_after', 'dl',
}
local TEXT, NUMBER = {}, {} -- names by short names
for i = 1, #TEXTS, 2 do
    TEXT[TEXTS[i + 1]] = TEXTS[i]
end
for i = 1, #NUMBERS, 2 do
    NUMBER[NUMBERS[i + 1]] = NUMBERS[i]
end

-- A record before anything is stored. What every job begins with is not written; the names only make the tables as
-- large at once as records get.
local function new_record(id)
    local stored = { run = 1, seq = 1, state = nil, added = nil, token = nil, sequence = nil, created_at = nil,
        lease = nil, worker = nil, started = nil, started_at = nil, plain = nil, made = nil, result = nil }
    return { id = id, stored = stored, run = 1, seq = 1, state = nil, added = nil, token = nil, sequence = nil,
        created_at = nil, lease = nil, worker = nil, started = nil, started_at = nil, plain = nil, made = nil,
        result = nil, finished_at = nil, header = nil, def = nil }
end

local function load_job(id)
    local flat = redis.call('HGETALL', prefix .. 'state:' .. id)
    if #flat == 0 then
        return nil
    end
    local job = new_record(id)
    local stored = job.stored
    for i = 1, #flat, 2 do
        local name, value = TEXT[flat[i]], flat[i + 1]
        if not name then
            name, value = NUMBER[flat[i]], tonumber(value)
        end
        job[name], stored[name] = value, value
    end
    return job
end

local function note_changes(job, names, as_text, changed, cleared)
    local stored = job.stored
    for i = 1, #names, 2 do
        local name = names[i]
        local value = job[name]
        if value ~= stored[name] then
            stored[name] = value
            if value == nil then
                cleared[#cleared + 1] = names[i + 1]
            else
                changed[#changed + 1] = names[i + 1]
                changed[#changed + 1] = as_text and as_text(value) or value
            end
        end
    end
end

local function save_job(job)
    local key, changed, cleared = prefix .. 'state:' .. job.id, {}, {}
    note_changes(job, TEXTS, nil, changed, cleared)
    note_changes(job, NUMBERS, int, changed, cleared)
    if #changed > 0 then
        redis.call('HSET', key, unpack(changed))
    end
    if #cleared > 0 then
        redis.call('HDEL', key, unpack(cleared))
    end
end

-- The definition, read at most once: its first line is the header, the rest the data.
local function header_of(job)
    if not job.header then
        job.def = redis.call('GET', prefix .. 'job:' .. job.id)
        job.header = cjson.decode(string.sub(job.def, 1, string.find(job.def, '\n', 1, true) - 1))
    end
    return job.header
end

local function data_of(job)
    header_of(job)
    return string.sub(job.def, string.find(job.def, '\n', 1, true) + 1)
end

local function priority_of(job)
    return job.priority or header_of(job).p or 0
end

local NOTHING = {}

-- A start notes whether the header says nothing about the job's end: then it is not read again for that.
local function note_end(job)
    local header = header_of(job)
    if not (header.ca or header.cc or header.fa or header.fc or header.dd or header.pa or header.f) then
        job.plain = '1'
    end
end

-- What the header says about the job's end.
local function end_options(job)
    return job.plain and NOTHING or header_of(job)
end

-- Before its second event a job has no history: its first can be told from its definition.
local function has_history(job)
    return job.seq > 1
end

local UNGROUPED = '*' -- the group of the jobs without a group, where the queue treats them as one

local function group_of(job)
    return job.ungrouped and UNGROUPED or header_of(job).g
end
