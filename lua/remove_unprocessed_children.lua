#!lua flags=allow-oom
-- Removes the children of a job that have not ended and do not run, each with all below it, which must not run either.
-- Bounded: a job with more of them is done in several calls.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   id     text    the parent
-- Returns
--   {children removed, "1" when there may be more}
-- Errors
--   LAYOUT_MISMATCH, JOB_NOT_FOUND
-- Events
--   removed (of the queue); of the parent: waiting, delayed
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, answer, find_job, remove_record, descendants
local _, _ = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

local function reply_of(text)
    local count, more = string.match(text, '^(%d+) (%d)$')
    return { tonumber(count), more }
end

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return reply_of(before)
end
local _, missing = find_job(id)
if missing then
    return missing
end

local removable, total, more = {}, 0, '0'
each_child(id, function(queue, job)
    if job.finished_at or job.state == 'active' then
        return true
    end
    local family = in_queue(queue, descendants, job, MAX_TREE - total)
    if not family or total + 1 + #family > MAX_TREE then
        more = '1'
        return total == 0 -- a single one with too much below it is left
    elseif not active_one(family) then
        total = total + 1 + #family
        family[#family + 1] = { queue = queue, job = job }
        removable[#removable + 1] = family
    end
    return true
end)
for _, family in ipairs(removable) do
    for at = 1, #family - 1 do
        in_queue(family[at].queue, take_out, family[at].job)
    end
    in_queue(family[#family].queue, remove_record, family[#family].job)
end
if #removable == 0 then
    more = '0'
end
return reply_of(answer(token, int(#removable) .. ' ' .. more))
