-- include: prefix, job_record, in_queue, children
-- Making a job the child of one that is there already.
local MAX_DEPTH = 20
local MAX_CHILDREN = 5000

-- The parent that a stored header names, or nil. Inside a JSON text a quote is escaped: only the name itself matches.
local function parent_in(header_json)
    return string.find(header_json, '"pa":', 1, true) and cjson.decode(header_json).pa or nil
end

-- The header of a job as JSON; nil when there is no such job.
local function stored_header(id)
    write_texts()
    local stored = redis.call('GET', prefix .. 'job:' .. id)
    return stored and string.match(stored, '^[^\n]*') or nil
end

local function refuse_flow(text)
    return redis.error_reply('FLOW_REFUSED ' .. text)
end

local function levels_down_to(parent)
    local home, levels = prefix, 0
    while parent and levels <= MAX_DEPTH do
        enter_queue(parent[1])
        local header_json = stored_header(parent[2])
        parent, levels = header_json and parent_in(header_json), levels + 1
    end
    prefix = home
    return levels
end

-- A definition is never changed: a job that is there already can be given no parent.
local function refuse_stranger(parent, id)
    local header_json = stored_header(id)
    local own = header_json and parent_in(header_json)
    if header_json and not (own and own[1] == parent[1] and own[2] == parent[2]) then
        return refuse_flow('job ' .. id .. ' is there already, and not as a child of ' .. parent[2])
    end
end

local function refuse_of_parent(id, name, more)
    local job = load_job(id)
    if not job then
        return refuse_flow('there is no job ' .. name .. ' to be the parent')
    elseif job.finished_at then
        return refuse_flow('job ' .. name .. ' is ' .. job.state .. ', so it can wait for no more children')
    elseif redis.call('HLEN', prefix .. 'children:' .. id) + more > MAX_CHILDREN then
        return refuse_flow('job ' .. name .. ' would have more than ' .. MAX_CHILDREN .. ' children')
    end
end

-- Why a tree of so many levels, or so many jobs, cannot be put below the parent; nil when that can be.
local function refuse_parent(parent, levels, more)
    local home = prefix
    local refusal = enter_queue(parent[1])
        or refuse_of_parent(parent[2], parent[2] .. ' in queue ' .. parent[1], more)
    prefix = home
    if not refusal and levels_down_to(parent) + levels > MAX_DEPTH then
        refusal = refuse_flow('a flow has at most ' .. MAX_DEPTH .. ' levels')
    end
    return refusal
end

local function add_pending(id, field)
    local job, from = load_job(id), redis.call('HGET', prefix .. 'children:' .. id, field)
    redis.call('HSET', prefix .. 'children:' .. id, field, 'p')
    count_child(job, from and string.sub(from, 1, 1), 'p')
    hold_back(job)
    save_job(job)
end

-- The job has just been stored: its parent waits for it, also one that waited for a worker only.
local function link_child(parent, id)
    in_queue(parent[1], add_pending, parent[2], queue_name() .. ':' .. id)
end
