#!lua flags=allow-oom
-- Ends a job's being a child: its parent waits for it no more, and hears nothing of it.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text    the child
-- Returns
--   "1" when its parent waited for it, else "0"
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
-- Events
--   of the parent: waiting, delayed
-- include: read_meta, answer, find_job, children
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local job, missing = find_job(id)
if missing then
    return missing
end
return answer(token, tell_parent(job, drop_child) and '1' or '0')
