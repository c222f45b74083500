-- include: prefix
-- The mutable record of a job: read whole, changed as a table, written whole. First comes what every job has or gets,
-- packed as COMMON says (0 and '' = nothing; a length stands before texts that others than we write); then, where there
-- is any, a MessagePack map of what only some have.
-- This is the only place that knows how.
local COMMON = '<I7I6I6I4I3I3I3BssssI2c0I2c0'
local RARE = {
    'priority', 'due_at', 'finished_at', 'expires_at', 'result', 'error', 'stack', 'reason', 'stalled', 'notify',
    'progress', 'preview', 'reported', 'told_at', 'checkpoint', 'cancel', 'cancel_at', 'entered_at', 'ungrouped',
    'affinity_key', 'batch_key', 'passed_at', 'children', 'completed_children', 'ignored_children', 'failed_child',
    'continued', 'delay_after',
}

local NOTHING = {}

local function load_job(id)
    local text = redis.call('GET', prefix .. 'state:' .. id)
    if not text then
        return nil
    end
    local sequence, created_at, started_at, seq, run, started, made, plain, state, added, token, lease, worker, recent,
        rest = struct.unpack(COMMON, text)
    local job = { id = id, state = state, sequence = sequence, created_at = created_at, added = added, token = token,
        seq = seq, run = run, plain = plain == 1 or nil, started = started > 0 and started or nil,
        started_at = started_at > 0 and started_at or nil, lease = lease ~= '' and lease or nil,
        worker = worker ~= '' and worker or nil, made = made > 0 and made or nil,
        recent = recent ~= '' and recent or nil, header = nil, def = nil, finished_at = nil, result = nil }
    if rest <= #text then
        for name, value in pairs(cmsgpack.unpack(string.sub(text, rest))) do
            job[name] = value
        end
    end
    return job
end

-- The same names as in RARE, of which most jobs have none: asking in one expression is cheaper than a loop.
local function has_rare(job)
    return job.priority or job.due_at or job.finished_at or job.expires_at or job.result or job.error or job.stack
        or job.reason or job.stalled or job.notify or job.progress or job.preview or job.reported or job.told_at
        or job.checkpoint or job.cancel or job.cancel_at or job.entered_at or job.ungrouped or job.affinity_key
        or job.batch_key or job.passed_at or job.children or job.completed_children or job.ignored_children
        or job.failed_child or job.continued or job.delay_after
end

local function save_job(job)
    local worker, recent = job.worker or '', job.recent or ''
    local text, rare = struct.pack(COMMON, job.sequence, job.created_at, job.started_at or 0, job.seq, job.run,
        job.started or 0, job.made or 0, job.plain and 1 or 0, job.state, job.added, job.token, job.lease or '',
        #worker, worker, #recent, recent), nil
    if has_rare(job) then
        rare = {}
        for _, name in ipairs(RARE) do
            rare[name] = job[name]
        end
    end
    redis.call('SET', prefix .. 'state:' .. job.id, rare and text .. cmsgpack.pack(rare) or text, 'KEEPTTL')
end

local function def_of(job)
    job.def = job.def or redis.call('GET', prefix .. 'job:' .. job.id)
    return job.def
end

-- The definition, read at most once: its first line is the header, the rest the data.
local function header_of(job)
    if not job.header then
        local def = def_of(job)
        job.header = cjson.decode(string.sub(def, 1, string.find(def, '\n', 1, true) - 1))
    end
    return job.header
end

local function data_of(job)
    local def = def_of(job)
    return string.sub(def, string.find(def, '\n', 1, true) + 1)
end

-- Whether the header asks for nothing that claims and ends have to know. Then they do not read it.
local function is_plain(header)
    return not (header.p or header.x or header.g or header.ca or header.cc or header.fa or header.fc or header.f
        or header.dd or header.pa)
end

-- The header, where it has something to say to a claim or an end.
local function options_of(job)
    return job.plain and NOTHING or header_of(job)
end

local function priority_of(job)
    return job.priority or options_of(job).p or 0
end

-- The events that stand in the record.
local function recent_events(job)
    local entries = {}
    for entry in string.gmatch(job.recent or '', '[^\n]+') do
        entries[#entries + 1] = entry
    end
    return entries
end

-- The newest event of a job's history. Its first is told from its definition; the next ones stand in its record, and
-- only of a job that goes on after them there is a list.
local function newest_event(job)
    if job.recent then
        return string.match(job.recent, '[^\n]*$')
    end
    return job.seq > 1 and redis.call('LINDEX', prefix .. 'log:' .. job.id, -1) or job.added
end

local UNGROUPED = '*' -- the group of the jobs without a group, where the queue treats them as one

local function group_of(job)
    return job.ungrouped and UNGROUPED or options_of(job).g
end
