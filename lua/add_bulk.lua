#!lua
-- Stores up to 500 jobs and queues them: all, or when that is refused none.
--
-- KEYS
--   meta        hash    the queue's record
--   none        -       never created
-- ARGV
--   token       text    request token of the caller; the k-th job's is `<token>.<k>`
--   outbox_max  number  entries of the outbox above which nothing is added
--   then three for each job, no id twice:
--   id          text    the job's id, made by the caller
--   header_json JSON    orchestrator.job.Header
--   data        JSON    one line, opaque
-- Returns
--   for each job what add_job answers
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   GROUP_FULL       as of add_job, with room for all
--   QUEUE_FULL       as of add_job; max_waiting must have room for all
--   FLOW_REFUSED     as of add_job, for any of them; a parent must be there before
-- Events
--   added, or duplicated (of the queue) when another call made this id; waiting-children (of a parent)
--   deduplicated, removed (of the queue)
-- include: read_meta, store_job, deduplicate, refuse_add, link_child
local _, _ = KEYS[1], KEYS[2]
local token, outbox_max = ARGV[1], tonumber(ARGV[2])

-- How many of the jobs need a place, in all and by group: not those that are there, nor those whose deduplication key
-- is held.
local function places_needed(jobs)
    local count, held, by_group = 0, {}, {}
    for _, job in ipairs(jobs) do
        local key = job.header.dd and prefix .. 'dedup:' .. job.header.dd.i
        local is_met = key and (held[key] or redis.call('EXISTS', key) == 1)
        if not is_met and redis.call('EXISTS', prefix .. 'state:' .. job.id) == 0 then
            count = count + 1
            if job.header.g then
                by_group[job.header.g] = (by_group[job.header.g] or 0) + 1
            end
        end
        if key then
            held[key] = true
        end
    end
    return count, by_group
end

local function refuse_places(meta, jobs)
    if not (meta.max_waiting or meta.grouped or meta.group_max_waiting) then
        return nil
    end
    local count, by_group = places_needed(jobs)
    local full = refuse_waiting(meta, count)
    for gid, more in pairs(by_group) do
        full = full or refuse_group(gid, more)
    end
    return full
end

local function is_known(job, k)
    local gone = tombstone_of(job.id)
    return redis.call('EXISTS', prefix .. 'state:' .. job.id) == 1 or gone and gone.token == token .. '.' .. int(k)
end

local function refuse_parents(jobs)
    local more, refused = {}, nil
    for k, job in ipairs(jobs) do
        local parent = job.header.pa
        refused = refused or parent and refuse_stranger(parent, job.id)
        if parent and not refused and not is_known(job, k) then
            local name = parent[1] .. ':' .. parent[2]
            more[name] = (more[name] or 0) + 1
            refused = refuse_parent(parent, 1, more[name])
        end
    end
    return refused
end

-- `is_repeat`: a job that the first call met may be gone; this call must not store another then.
local function add_one(meta, own_token, job, is_repeat)
    local before = told_before(own_token, job.header) or answer_again(own_token, job.id)
    if before or is_repeat then
        return before or { 'duplicated', 'waiting', int(now), job.id }
    end
    local reply = deduplicate(meta, own_token, job.id, job.header_json, job.data, job.header)
    if not reply then
        reply = store_job(meta, own_token, job.id, job.header_json, job.data, job.header)
        if job.header.pa then
            link_child(job.header.pa, job.id)
        end
    end
    return reply
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local jobs = {}
for i = 3, #ARGV, 3 do
    local id, header_json, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    jobs[#jobs + 1] = { id = id, header_json = header_json, header = cjson.decode(header_json), data = data }
end
local is_repeat = answered(token)
if not is_repeat then
    local full = refuse_closing(meta) or refuse_outbox(outbox_max)
        or refuse_places(meta, jobs) or refuse_parents(jobs)
    if full then
        return full
    end
    answer(token, 'added')
end
local replies = {}
for i, job in ipairs(jobs) do
    replies[i] = add_one(meta, token .. '.' .. int(i), job, is_repeat)
end
return replies
