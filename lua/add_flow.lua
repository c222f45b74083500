#!lua
-- Stores flows, trees of jobs in queues of one tag: all of them, or nothing.
--
-- KEYS
--   meta        string  the record of one of the queues
--   none        -       never created
-- ARGV
--   token       text    request token of the caller
--   outbox_max  number  entries of a queue's outbox above which nothing is added
--   then five for each job, each flow from its root on, parents before their children:
--   queue        text
--   id           text
--   parent       number  its parent's place among these jobs, from 1; 0 = a root
--   header_json  JSON    orchestrator.job.Header; `ch` is how many children follow
--   data         JSON    one line, opaque
-- Returns
--   for each flow what add_jobs answers for its root; a flow whose root is there already is left as it is
-- Errors
--   LAYOUT_MISMATCH  another major version wrote one of the queues
--   GROUP_FULL       as of add_jobs, with room for all
--   QUEUE_FULL       as of add_jobs, in any of the queues; max_waiting must have room for all
--   FLOW_REFUSED     a job below a new root is there already; or the root's own parent cannot take it
-- Events
--   added, duplicated (of the queue: another call made a root), waiting-children (of a root's parent)
-- include: read_meta, store_job, link_child, refuse_add
local _, _ = KEYS[1], KEYS[2]
local token, outbox_max = ARGV[1], tonumber(ARGV[2])

local nodes = {}

local function is_known_root(node)
    local gone = tombstone_of(node.id)
    return load_job(node.id) ~= nil or (gone and gone.token == token)
end

local function refuse_root(node)
    local parent = node.header.pa
    local refusal = parent and refuse_stranger(parent, node.id)
    node.is_new = not is_known_root(node)
    node.above = parent
    if not refusal and parent and node.is_new then
        refusal = refuse_parent(parent, 1, 1)
        node.level = levels_down_to(parent) + 1
    end
    return refusal
end

local function refuse_child(node)
    local parent = nodes[node.parent]
    node.is_new, node.level = parent.is_new, parent.level + 1
    if node.is_new and has_record(node.id) then
        return refuse_flow('job ' .. node.id .. ' of queue ' .. node.queue .. ' is there already')
    elseif node.is_new and node.level > MAX_DEPTH then
        return refuse_flow('a flow has at most ' .. MAX_DEPTH .. ' levels')
    end
end

-- The new jobs of each queue: {queue = …, count = …, groups = {[group] = count}}, in order of appearance.
local function places_needed()
    local places, by_queue = {}, {}
    for _, node in ipairs(nodes) do
        local place = by_queue[node.queue]
        if node.is_new and not place then
            place = { queue = node.queue, count = 0, groups = {} }
            by_queue[node.queue], places[#places + 1] = place, place
        end
        if node.is_new then
            local gid = node.header.g
            place.count = place.count + 1
            if gid then
                place.groups[gid] = (place.groups[gid] or 0) + 1
            end
        end
    end
    return places
end

local function refuse_places()
    for _, place in ipairs(places_needed()) do
        enter_queue(place.queue)
        local meta = queue_meta()
        local full = refuse_closing(meta) or refuse_outbox(outbox_max) or refuse_waiting(meta, place.count)
        for gid, more in pairs(place.groups) do
            full = full or refuse_group(gid, more)
        end
        if full then
            return full
        end
    end
end

for i = 3, #ARGV, 5 do
    local node = { queue = ARGV[i], id = ARGV[i + 1], parent = tonumber(ARGV[i + 2]), header_json = ARGV[i + 3],
        data = ARGV[i + 4], level = 1, children = {} }
    node.header = cjson.decode(node.header_json)
    nodes[#nodes + 1] = node
    local refuse = node.parent == 0 and refuse_root or refuse_child
    local refusal = enter_queue(node.queue) or refuse(node)
    if refusal then
        return refusal
    end
end
local full = refuse_places()
if full then
    return full
end

local replies = {}
for _, node in ipairs(nodes) do
    enter_queue(node.queue)
    local reply
    if node.is_new then
        reply = store_job(queue_meta(), token, node.id, node.header_json, node.data, node.header)
    elseif node.parent == 0 then
        reply = answer_again(token, node.id)
    end
    if node.parent == 0 then
        replies[#replies + 1] = reply
        if node.is_new and node.above then
            link_child(node.above, node.id)
        end
    elseif node.is_new then
        local fields = nodes[node.parent].children
        fields[#fields + 1] = queue_name() .. ':' .. node.id
        fields[#fields + 1] = 'p'
    end
end
for _, node in ipairs(nodes) do
    if #node.children > 0 then
        enter_queue(node.queue)
        redis.call('HSET', prefix .. 'children:' .. node.id, unpack(node.children))
    end
end
return replies
