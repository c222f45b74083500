#!lua flags=no-writes
-- Reads a page of the children of each of some jobs.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   start  number  from 0
--   count  number  children of each job; in all at most 200
--   then two for each job:
--   queue  text
--   id     text
-- Returns
--   for each job {looked, then queue and job, as in get_jobs, of each child that is still there}; looked is how many
--   children its page has, those that are gone, too
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_jobs, descendants
local _, _ = KEYS[1], KEYS[2]
local start, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local function child_reply(id, parent_queue, parent_id)
    local job = child_of(id, parent_queue, parent_id)
    return job and job_reply(job)
end

local function children_of(id)
    local own_queue, names, reply = queue_name(), redis.call('HKEYS', prefix .. 'children:' .. id), { 0 }
    for i = start + 1, math.min(start + count, #names) do
        local queue, child_id = string.match(names[i], '^([^:]+):(.+)$')
        local job = in_queue(queue, child_reply, child_id, own_queue, id)
        reply[1] = reply[1] + 1
        if job then
            reply[#reply + 1] = queue
            reply[#reply + 1] = job
        end
    end
    return reply
end

local _, refusal = read_meta()
if refusal then
    return refusal
end
local replies = {}
for i = 3, #ARGV, 2 do
    replies[#replies + 1] = in_queue(ARGV[i], children_of, ARGV[i + 1]) or { 0 }
end
return replies
