#!lua flags=allow-oom
-- Stores a delivery, which the service owes: it is taken by a full server too, or the outbox could never empty.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   token        text  request token of the relay
--   id           text  the delivery's id: always the same for an event and a subscription
--   header_json  JSON  orchestrator.job.Header
--   data         JSON  one line, opaque
-- Returns
--   what add_jobs answers for one job
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   QUEUE_FULL       the queue is being obliterated
-- Events
--   added, or duplicated (of the queue)
-- include: read_meta, store_job, refuse_add
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
return answer_again(token, id) or refuse_closing(meta) or store_job(meta, token, id, header_json, data)
