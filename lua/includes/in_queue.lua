-- include: prefix, read_meta
-- Other queues in the same script: those of one tag share a slot. `prefix` says in which queue the script works, and
-- what was read of one queue is never used for another.
local entered = { [prefix] = true }

local function queue_name()
    local name = string.sub(prefix, 8, -2) -- without `kargah:` and `:`
    return string.match(name, '^{([^}]*)}$') or name
end

local function enter_queue(queue)
    prefix = 'kargah:' .. (string.sub(queue, 1, 1) == '{' and queue or '{' .. queue .. '}') .. ':'
    if not entered[prefix] then
        entered[prefix] = true
        read_meta()
    end
end

-- What `work` returns, done in that queue.
local function in_queue(queue, work, ...)
    local home = prefix
    enter_queue(queue)
    local one, other = work(...)
    prefix = home
    return one, other
end
