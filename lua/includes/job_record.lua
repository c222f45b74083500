-- include: prefix, int, save
-- The mutable record of a job: read whole, changed as a table, written whole. It is packed: what every job has (HEAD);
-- of one that has started or ended, its newest attempt (ATTEMPT), and how it ended (END); then, where there is any, a
-- MessagePack map of what only some have. 0 and '' = nothing; a length stands before texts that others than we write.
-- This is the only place that knows how.
local STATE_OF = { 'waiting', 'delayed', 'active', 'waiting-children', 'completed', 'failed', 'canceled' }
local CODE_OF = {
    waiting = 1, delayed = 2, active = 3, ['waiting-children'] = 4, completed = 5, failed = 6, canceled = 7,
}
local HEAD, ATTEMPT, END = '<BBI7I4I3I2c0', '<I3I3I6ssI2c0', '<I6sI4c0'
local BORN = '<I6I6I4s' -- when it was added, with which event, by which call: one text of HEAD, which is rarely read
local UP_TO_ATTEMPT = HEAD .. 'I3I3I6ssI2c0'
local UP_TO_END = UP_TO_ATTEMPT .. 'I6sI4c0'
local IS_PLAIN, HAS_ATTEMPT, HAS_END = 1, 2, 4
local RARE = {
    'priority', 'due_at', 'expires_at', 'error', 'stack', 'reason', 'stalled', 'notify', 'progress', 'preview',
    'reported', 'told_at', 'checkpoint', 'cancel', 'cancel_at', 'entered_at', 'ungrouped', 'affinity_key', 'batch_key',
    'passed_at', 'children', 'completed_children', 'ignored_children', 'failed_child', 'continued', 'delay_after',
}

local NOTHING = {}

local function read_attempt(job, text, from)
    local started, made, started_at, lease, began, worker, rest = struct.unpack(ATTEMPT, text, from)
    if started > 0 then
        job.started, job.started_at, job.lease, job.worker = started, started_at, lease, worker
    end
    job.made = made > 0 and made or nil
    job.began = began ~= '' and began or nil
    return rest
end

local function read_end(job, text, from)
    local finished_at, ended, result, rest = struct.unpack(END, text, from)
    job.finished_at = finished_at
    job.ended = ended ~= '' and ended or nil
    job.result = result ~= '' and result or nil
    return rest
end

local function read_record(id, text)
    local code, flags, sequence, seq, run, born, rest = struct.unpack(HEAD, text)
    local job = { id = id, state = STATE_OF[code], sequence = sequence, seq = seq, run = run, born = born,
        plain = flags % HAS_ATTEMPT == IS_PLAIN or nil, is_bare = true,
        started = nil, made = nil, started_at = nil, lease = nil, worker = nil, began = nil } -- these keep room
    if flags >= HAS_ATTEMPT then
        rest = read_attempt(job, text, rest)
    end
    if flags >= HAS_END then
        rest = read_end(job, text, rest)
    end
    if rest <= #text then
        job.is_bare = false
        for name, value in pairs(cmsgpack.unpack(string.sub(text, rest))) do
            job[name] = value
        end
    end
    return job
end

local function load_job(id)
    local key = prefix .. 'state:' .. id
    if unsaved[key] then
        write_texts()
    end
    local text = redis.call('GET', key)
    return text and read_record(id, text) or nil
end

-- Records that are there, with their definitions: in one command, at half the price.
local function load_whole_jobs(ids)
    local keys, jobs, is_unsaved = {}, {}, false
    for i = 1, #ids do
        local key = prefix .. 'state:' .. ids[i]
        keys[2 * i - 1], keys[2 * i] = key, prefix .. 'job:' .. ids[i]
        is_unsaved = is_unsaved or unsaved[key]
    end
    if is_unsaved then
        write_texts()
    end
    local texts = #keys > 0 and redis.call('MGET', unpack(keys)) or {}
    for i = 1, #ids do
        jobs[i] = read_record(ids[i], texts[2 * i - 1])
        jobs[i].def = texts[2 * i]
    end
    return jobs
end

-- The same names as in RARE, of which most jobs have none: asking in one expression is cheaper than a loop.
local function has_rare(job)
    return job.priority or job.due_at or job.expires_at or job.error or job.stack or job.reason or job.stalled
        or job.notify or job.progress or job.preview or job.reported or job.told_at or job.checkpoint or job.cancel
        or job.cancel_at or job.entered_at or job.ungrouped or job.affinity_key or job.batch_key or job.passed_at
        or job.children or job.completed_children or job.ignored_children or job.failed_child or job.continued
        or job.delay_after
end

-- created_at, the id of `added`, and the token of the call that added it.
local function birth_of(job)
    local created_at, ms, number, token = struct.unpack(BORN, job.born)
    return created_at, int(ms) .. '-' .. int(number), token
end

-- The first of these as it is packed.
local function packed_created_at(job)
    return string.sub(job.born, 1, 6)
end

local function pack_birth(created_at, ms, number, token)
    return struct.pack(BORN, created_at, ms, number, token)
end

local function packed_common(job)
    local flags, birth = job.plain and IS_PLAIN or 0, job.born
    if not (job.started or job.finished_at) then
        return struct.pack(HEAD, CODE_OF[job.state], flags, job.sequence, job.seq, job.run, #birth, birth)
    end
    local worker = job.worker or ''
    if not job.finished_at then
        return struct.pack(UP_TO_ATTEMPT, CODE_OF[job.state], flags + HAS_ATTEMPT, job.sequence, job.seq, job.run,
            #birth, birth, job.started, job.made or 0, job.started_at, job.lease, job.began or '', #worker, worker)
    end
    local result = job.result or ''
    return struct.pack(UP_TO_END, CODE_OF[job.state], flags + HAS_ATTEMPT + HAS_END, job.sequence, job.seq, job.run,
        #birth, birth, job.started or 0, job.made or 0, job.started_at or 0, job.lease or '', job.began or '', #worker,
        worker, job.finished_at, job.ended or '', #result, result)
end

local function packed(job)
    local text = packed_common(job)
    if not has_rare(job) then
        return text
    end
    local rare = {}
    for _, name in ipairs(RARE) do
        rare[name] = job[name]
    end
    return text .. cmsgpack.pack(rare)
end

local function save_job(job)
    local key = prefix .. 'state:' .. job.id
    unsaved[key] = nil
    redis.call('SET', key, packed(job), 'KEEPTTL')
end

-- The same at the call's end, for a record that does not end by itself. `is_bare`: the caller knows that it has nothing
-- of what only some have.
local function save_later(job, is_bare)
    unsaved[prefix .. 'state:' .. job.id] = is_bare and packed_common(job) or packed(job)
end

local function has_record(id)
    write_texts()
    return redis.call('EXISTS', prefix .. 'state:' .. id) == 1
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

local UNGROUPED = '*' -- the group of the jobs without a group, where the queue treats them as one

local function group_of(job)
    return job.ungrouped and UNGROUPED or options_of(job).g
end
