#!lua flags=allow-oom
-- Removes a job that is not running, with its history.
--
-- KEYS
--   meta   hash    the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text
-- Returns
--   "removed", or "" when there was no such job
-- Errors
--   LAYOUT_MISMATCH
--   WRONG_STATE  the job is running
-- Events
--   removed (of the queue)
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, answer, find_job, remove_record, count_up
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local job = load_job(id)
if not job then
    return answer(token, '')
end
if job.state == 'active' then
    return wrong_state(job, 'cancel it first')
end
remove_record(job)
flush_counts(meta)
return answer(token, 'removed')
