#!lua
-- Stores a job and queues it.
--
-- KEYS
--   meta        hash    the queue's record
--   none        -       never created; a second key makes a moving slot answer before anything runs
-- ARGV
--   token       text    request token of the caller
--   id          text    the job's id, made by the caller
--   header_json JSON    orchestrator.job.Header
--   data        JSON    one line, opaque
--   outbox_max  number  entries of the outbox above which nothing is added
-- Returns
--   {"added" | "duplicated" | "deduplicated", state, created_at, id}: of the job that is there now
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   GROUP_FULL       the group has as many waiting jobs as its max_waiting allows
--   QUEUE_FULL       the outbox is above its limit (nobody delivers), max_waiting jobs are there, or it is obliterated
--   FLOW_REFUSED     its parent is missing, has finished or can take no more; or the job is there without that parent
-- Events
--   added, or duplicated (of the queue) when another call made this id; waiting-children (of its parent)
--   deduplicated, removed (of the queue, where a job holds this one's deduplication key)
-- include: read_meta, store_job, deduplicate, refuse_add, link_child
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data, outbox_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local meta, refusal = read_meta()
if refusal then
    return refusal
end

local header = cjson.decode(header_json)
local parent = header.pa
local before = parent and refuse_stranger(parent, id) or header.dd and told_before(token, header)
    or answer_again(token, id)
if before then
    return before
end
local full = refuse_closing(meta) or refuse_outbox(outbox_max) or parent and refuse_parent(parent, 1, 1)
if full then
    return full
end
local reply = header.dd and deduplicate(meta, token, id, header_json, data, header)
    or refuse_waiting(meta, 1)
    or refuse_group(header.g, 1)
if not reply then
    reply = store_job(meta, token, id, header_json, data, header)
    if parent then
        link_child(parent, id)
    end
end
return reply
