#!lua
-- Stores up to 500 jobs and queues them: all, or when that is refused none.
--
-- KEYS
--   meta        string  the queue's record
--   none        -       never created
-- ARGV
--   token       text    request token of the caller; the k-th job's is `<token>.<k>`
--   outbox_max  number  entries of the outbox above which nothing is added
--   then three for each job, no id twice:
--   id          text    the job's id, made by the caller
--   header_json JSON    orchestrator.job.Header
--   data        JSON    one line, opaque
-- Returns
--   for each job what add_jobs answers
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   GROUP_FULL       as of add_jobs, with room for all
--   QUEUE_FULL       as of add_jobs; max_waiting must have room for all
--   FLOW_REFUSED     as of add_jobs, for any of them; a parent must be there before
-- Events
--   added, or duplicated (of the queue) when another call made this id; waiting-children (of a parent)
--   deduplicated, removed (of the queue)
-- include: read_meta, new_jobs, deduplicate, refuse_add, link_child
local _, _ = KEYS[1], KEYS[2]
local token, outbox_max = ARGV[1], tonumber(ARGV[2])

-- The job that holds a key when its turn comes, as far as that is known before anything is stored: from before, or the
-- first new one of these.
local function holder_of(job, held)
    local name = job.header.dd and job.header.dd.i
    if name and held[name] == nil then
        held[name] = key_holder(name) or false
    end
    return name and held[name]
end

-- How many of the jobs need a place, in all and by group: not those that are there, nor those whose deduplication key
-- is held; who replaces the holder has its place, but not in the group.
local function places_needed(jobs)
    local count, held, by_group = 0, {}, {}
    for _, job in ipairs(jobs) do
        local holder, gid = holder_of(job, held), job.header.g
        local is_new = not has_record(job.id)
        if is_new and not holder then
            count = count + 1
        end
        if gid and is_new and (not holder or is_replaceable(holder, job.header.dd)) then
            by_group[gid] = (by_group[gid] or 0) + 1
        end
        if job.header.dd and is_new and (not holder or job.header.d) then -- the latter may replace it, and be replaced
            held[job.header.dd.i] = { state = job.header.d and 'delayed' or 'waiting' }
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

local function is_known(job)
    local gone = tombstone_of(job.id)
    return has_record(job.id) or gone and gone.token == job.token
end

local function refuse_parents(jobs)
    local more, refused = {}, nil
    for _, job in ipairs(jobs) do
        local parent = job.header.pa
        refused = refused or parent and refuse_stranger(parent, job.id)
        if parent and not refused and not is_known(job) then
            local name = parent[1] .. ':' .. parent[2]
            more[name] = (more[name] or 0) + 1
            refused = refuse_parent(parent, 1, more[name])
        end
    end
    return refused
end

-- `is_repeat`: a job that the first call met may be gone; this call must not store another then.
local function add_one(meta, jobs, job, is_repeat)
    local before = answer_before(jobs, job)
    if before or is_repeat then
        return before or reply_met('duplicated', 'waiting', now, job.id)
    end
    return job.header.dd and deduplicate(meta, job.token, job.id, job.header_json, job.data, job.header)
        or store_new(meta, job)
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local jobs = new_jobs(token, ARGV, 3)
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
for k, job in ipairs(jobs) do
    replies[k] = add_one(meta, jobs, job, is_repeat)
end
return replies
