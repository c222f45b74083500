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
-- Events
--   added, or duplicated (of the queue) when another call made this id
-- include: read_meta, store_job
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data, outbox_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local meta, refusal = read_meta()
if refusal then
    return refusal
end

local before = answer_again(token, id)
if before then
    return before
end
if redis.call('XLEN', prefix .. 'outbox') >= outbox_max then
    return redis.error_reply('QUEUE_FULL the outbox holds ' .. int(outbox_max) .. ' undelivered events')
end
local reply = store_job(meta, token, id, header_json, data)
flush_counts(meta)
return reply
