#!lua flags=no-writes
-- Counts a job's children by what became of them.
--
-- KEYS
--   meta  string  the queue's record
--   none  -       never created
-- ARGV
--   id    text  the parent
-- Returns
--   {pending, completed, failed, ignored failures}
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
-- Events
--   none
-- include: read_meta, find_job
local _, _ = KEYS[1], KEYS[2]
local id = ARGV[1]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local job, missing = find_job(id)
if missing then
    return missing
end
local pending, completed = job.children or 0, job.completed_children or 0
local ignored = job.ignored_children or 0
local all = redis.call('HLEN', prefix .. 'children:' .. id)
return { pending, completed, all - pending - completed - ignored, ignored }
