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
--   {"added" | "duplicated", state, created_at}
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   QUEUE_FULL       the outbox is above its limit: nobody delivers
--   FLOW_REFUSED     its parent is missing, has finished or can take no more; or the job is there without that parent
-- Events
--   added, or duplicated (of the queue) when another call made this id; waiting-children (of its parent)
-- include: read_meta, store_job, link_child
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data, outbox_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local meta, refusal = read_meta()
if refusal then
    return refusal
end

local parent = parent_in(header_json)
local stranger = parent and refuse_stranger(parent, id)
if stranger then
    return stranger
end
local before = answer_again(token, id)
if before then
    return before
end
local refused = parent and refuse_parent(parent, 1)
if refused then
    return refused
end
if redis.call('XLEN', prefix .. 'outbox') >= outbox_max then
    return redis.error_reply('QUEUE_FULL the outbox holds ' .. int(outbox_max) .. ' undelivered events')
end
local added = store_job(meta, token, id, header_json, data)
if parent then
    link_child(parent, id)
end
return added
