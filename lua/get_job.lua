#!lua flags=no-writes
-- Reads a job whole: definition, state, history and the queue's newest event id, as of one instant.
--
-- KEYS
--   meta     string  the queue's record
--   none     -       never created
-- ARGV
--   id            text
--   with_history  flag    "1" = with the history
-- Returns
--   {job, history, last event id}, or {} when there is no such job; a history entry is "<event id> <JSON>"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_jobs, history
local _, _ = KEYS[1], KEYS[2]
local id, with_history = ARGV[1], ARGV[2] == '1'

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local job = load_job(id)
if not job then
    return {}
end
local history = {}
if with_history then
    local created_at, added = birth_of(job)
    history = { added .. ' ' .. added_text(job, created_at), begin_entry(job) }
    for _, entry in ipairs(redis.call('LRANGE', prefix .. 'log:' .. id, 0, -1)) do
        history[#history + 1] = entry
    end
    history[#history + 1] = end_entry(job)
end
return { job_reply(job), history, last_event_id(meta) }
