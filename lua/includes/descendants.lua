-- include: prefix, job_record, in_queue
-- The jobs below a job.
local MAX_TREE = 500

local function child_of(id, parent_queue, parent_id)
    local job = load_job(id)
    local parent = job and header_of(job).pa
    if parent and parent[1] == parent_queue and parent[2] == parent_id then -- else the id was used again
        return job
    end
end

-- Calls `visit(queue, job)` for each child that is still there, until it returns false.
local function each_child(id, visit)
    local own_queue = queue_name()
    for _, name in ipairs(redis.call('HKEYS', prefix .. 'children:' .. id)) do
        local queue, child_id = string.match(name, '^([^:]+):(.+)$')
        local job = in_queue(queue, child_of, child_id, own_queue, id)
        if job and visit(queue, job) == false then
            return
        end
    end
end

-- All that are still there as {queue = …, job = …}, parents before children; nil when there are more than `most`.
local function descendants(job, most)
    local found, queue, id, at = {}, queue_name(), job.children and job.id, 0
    local function keep(child_queue, child)
        found[#found + 1] = { queue = child_queue, job = child }
        return #found <= most
    end
    while id do
        in_queue(queue, each_child, id, keep)
        if #found > most then
            return nil
        end
        repeat
            at = at + 1
        until not found[at] or found[at].job.children
        queue, id = found[at] and found[at].queue, found[at] and found[at].job.id
    end
    return found
end

local function active_one(family)
    for _, member in ipairs(family) do
        if member.job.state == 'active' then
            return member.job
        end
    end
end

local function too_many(job)
    return redis.error_reply('FLOW_REFUSED job ' .. job.id .. ' has more than ' .. MAX_TREE .. ' jobs below it')
end
