#!lua flags=allow-oom
-- Removes a job that is not running, with its history. All jobs below it go with it, or, when one of them runs, none.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text
--   whole  flag    "1" = with its children, and theirs
-- Returns
--   "removed", or "" when there was no such job
-- Errors
--   LAYOUT_MISMATCH
--   WRONG_STATE   the job, or one below it, is running
--   FLOW_REFUSED  too many jobs are below it
-- Events
--   removed (of the queue); of its parent: waiting, delayed
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, answer, find_job, remove_record, descendants
local _, _ = KEYS[1], KEYS[2]
local token, id, whole = ARGV[1], ARGV[2], ARGV[3] == '1'

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
local family = {}
if whole then
    family = descendants(job, MAX_TREE)
end
if not family then
    return too_many(job)
end
local active = active_one(family)
if active then
    return wrong_state(active, 'cancel it before ' .. id .. ', which waits for it, can be removed')
end
for _, member in ipairs(family) do
    in_queue(member.queue, take_out, member.job)
end
remove_record(job)
return answer(token, 'removed')
