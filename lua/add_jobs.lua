#!lua
-- Stores jobs of several callers and queues them: each is stored, found to be there or refused for itself.
--
-- KEYS
--   meta        string  the queue's record
--   none        -       never created; a second key makes a moving slot answer before anything runs
-- ARGV
--   token       text    request token of the caller; the k-th job's is `<token>.<k>`
--   outbox_max  number  entries of the outbox above which nothing is added
--   then three for each job:
--   id          text    the job's id, made by the caller
--   header_json JSON    orchestrator.job.Header
--   data        JSON    one line, opaque
-- Returns
--   for each job the text `added state created_at`; or, of the job that is there instead, `duplicated …` or
--   `deduplicated …` with its id at the end; or the error that refuses it
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue; instead of all answers
--   GROUP_FULL       the group has as many waiting jobs as its max_waiting allows
--   QUEUE_FULL       the outbox is above its limit (nobody delivers), max_waiting jobs are there, or it is obliterated
--   FLOW_REFUSED     its parent is missing, has finished or can take no more; or the job is there without that parent
-- Events
--   added, or duplicated (of the queue) when another call made this id; waiting-children (of its parent)
--   deduplicated, removed (of the queue, where a job holds this one's deduplication key)
-- include: read_meta, new_jobs, deduplicate, refuse_add, link_child
local _, _ = KEYS[1], KEYS[2]
local token, outbox_max = ARGV[1], tonumber(ARGV[2])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local full = refuse_closing(meta) or refuse_outbox(outbox_max)

local function add_one(jobs, job)
    local header = job.header
    local parent = header.pa
    return parent and refuse_stranger(parent, job.id)
        or answer_before(jobs, job)
        or full
        or parent and refuse_parent(parent, 1, 1)
        or header.dd and deduplicate(meta, job.token, job.id, job.header_json, job.data, header)
        or refuse_waiting(meta, 1)
        or refuse_group(header.g, 1)
        or store_new(meta, job)
end

local jobs, replies = new_jobs(token, ARGV, 3), {}
for k, job in ipairs(jobs) do
    replies[k] = add_one(jobs, job)
end
return replies
