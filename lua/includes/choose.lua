-- include: prefix, now, job_record, groups, add_to_wait
-- Choosing for a worker that has wishes: among the jobs whose turn is near it prefers those whose affinity key it has
-- warm, and passes none over for longer than its patience; a batch that is too small may linger.
local WINDOW = 32
local WINDOW_GROUPS = 8
local LINGERED_MS = 60000
local MOST_EXAMINED = 64 -- waiting jobs of batches
local MOST_LEAD = 4 -- how far ahead of its turn a group may be served, in jobs

-- A waiting job of the window: what its place says of it.
local function candidate(member, score, group)
    local id = string.sub(member, 18)
    local job = load_job(id)
    return { id = id, score = score, group = group, affinity = job.affinity_key, batch = job.batch_key,
        passed_at = job.passed_at }
end

local function add_candidates(window, key, count, group)
    local flat = redis.call('ZRANGE', prefix .. key, 0, count - 1, 'WITHSCORES')
    for i = 1, #flat, 2 do
        window[#window + 1] = candidate(flat[i], flat[i + 1], group)
    end
end

-- Those whose turn is near, in order: jobs without a group, then some of each of the next groups.
local function near_candidates()
    local window = {}
    settle_set('wait')
    add_candidates(window, 'wait', WINDOW, nil)
    if not queue_meta().grouped or #window == WINDOW then
        return window
    end
    for _, gid in ipairs(redis.call('ZRANGE', prefix .. 'groups', 0, WINDOW_GROUPS - 1)) do
        local group = load_group(gid)
        if held_until(group) then
            settle(group)
        elseif #window < WINDOW then
            add_candidates(window, 'group:' .. gid, math.min(WINDOW / WINDOW_GROUPS, WINDOW - #window), group)
        end
    end
    return window
end

local function may_start(job)
    local gid = group_of(job)
    return not gid or not held_until(load_group(gid))
end

local batches, examined = {}, 0 -- what is known in this call

-- The first of a batch that may start, and how many may, as far as `enough`: jobs of groups that may not start neither
-- fill a batch nor make it linger. A call examines so few that it never takes long; beyond that all are taken to start.
local function count_batch(key, enough)
    local members = redis.call('ZRANGE', prefix .. 'batch:' .. key, 0, math.max(WINDOW, enough) - 1)
    if not queue_meta().grouped or examined >= MOST_EXAMINED then
        return { size = #members, first = id_of(members[1]) }
    end
    local batch = { size = 0 }
    for _, member in ipairs(members) do
        if batch.size < enough then
            examined = examined + 1
            local job = load_job(id_of(member))
            if may_start(job) then
                batch.size, batch.first = batch.size + 1, batch.first or job.id
            end
        end
    end
    return batch
end

-- Until a job's batch may start, in ms: 0 when it is large enough or has lingered long enough.
local function linger_left(job, wish)
    if not wish or not job.batch or (wish.min_size or 1) <= 1 then
        return 0
    end
    batches[job.batch] = batches[job.batch] or count_batch(job.batch, wish.min_size)
    local batch = batches[job.batch]
    if batch.size >= wish.min_size then
        return 0
    end
    local first = load_job(batch.first or job.id)
    return math.max(first.entered_at + wish.linger_ms - now, 0)
end

-- Whether serving `job` before `first` keeps the order between priorities and, within bounds, between groups.
local function may_overtake(job, first, heads)
    if (job.group == nil) ~= (first.group == nil) or heads[job.group or ''] ~= job.score then
        return false
    end
    return job.group == nil or job.group.tag - first.group.tag <= MOST_LEAD / (job.group.weight or 1)
end

local function pick(window, wishes)
    local warm, patience_ms, heads = {}, wishes.patience_ms or 0, {}
    for _, key in ipairs(wishes.warm or {}) do
        warm[key] = true
    end
    local first, passed, ready_ms = nil, {}, nil
    for _, job in ipairs(window) do
        local left_ms = linger_left(job, wishes.batch)
        if left_ms > 0 then
            ready_ms = math.min(ready_ms or left_ms, left_ms)
        else
            first = first or job
            heads[job.group or ''] = heads[job.group or ''] or job.score
            local is_overdue = job.passed_at and now - job.passed_at >= patience_ms
            if job == first and (not job.affinity or is_overdue) then
                return job, {}, nil
            elseif may_overtake(job, first, heads) then
                if is_overdue or warm[job.affinity] then
                    return job, passed, nil
                end
                passed[#passed + 1] = job
            end
        end
    end
    return first, {}, ready_ms
end

-- Returns the job to start, not yet taken; or nil, and in how many ms a batch is ready.
local function choose(wishes)
    local window = near_candidates()
    local found, passed, ready_ms = pick(window, wishes)
    if not found then -- groups that may not start have left the ring: others may stand behind them
        local is_to_look_again = #window == 0 and redis.call('EXISTS', prefix .. 'groups') == 1
        return nil, is_to_look_again and 0 or ready_ms
    end
    for _, job in ipairs(passed) do
        if not job.passed_at then
            local record = load_job(job.id)
            record.passed_at = now
            save_job(record)
        end
    end
    return load_job(found.id), nil
end

-- A worker that lingers took a wake-up that may have been for another one: it leaves it to that, once for what has come
-- since it did so last, or two that linger would wake each other for ever.
local function leaves_wake_up(worker, ready_ms)
    if not ready_ms or ready_ms == 0 then
        return false
    end
    local key, newest = prefix .. 'lingered:' .. worker, int(queue_meta().sequence)
    if redis.call('GET', key) == newest then
        return false
    end
    redis.call('SET', key, newest, 'PX', LINGERED_MS)
    return true
end

-- Waiting jobs that may join a batch, in order.
local function batch_members(job, count)
    if not job.batch_key or count < 1 then
        return {}
    end
    local ids = redis.call('ZRANGE', prefix .. 'batch:' .. job.batch_key, 0, count - 1)
    for i, member in ipairs(ids) do
        ids[i] = id_of(member)
    end
    return ids
end

-- The same among those whose turn is near, of which none is in a group that may not start.
local function near_members(job, count)
    local ids = {}
    if count < 1 or redis.call('EXISTS', prefix .. 'batch:' .. (job.batch_key or '')) == 0 then
        return ids
    end
    for _, other in ipairs(near_candidates()) do
        if other.batch == job.batch_key then
            ids[#ids + 1] = other.id
        end
    end
    return ids
end
