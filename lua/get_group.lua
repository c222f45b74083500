#!lua flags=no-writes
-- Reads a group, and a page of its waiting jobs.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   gid    text    the group
--   start  number  from 0
--   count  number  at most 100
-- Returns
--   {group, jobs}; the group as in get_groups, the jobs as in get_jobs, next first
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_group, read_jobs
local _, _ = KEYS[1], KEYS[2]
local gid, start, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local ids = {}
if count > 0 then
    for i, member in ipairs(redis.call('ZRANGE', prefix .. 'group:' .. gid, start, start + count - 1)) do
        ids[i] = string.sub(member, 18)
    end
end
return { group_reply(gid), job_replies(ids) }
