-- include: prefix, read_meta
-- Other queues in the same script: those of one tag share a slot. `prefix` says in which queue the script works, and
-- what was read of one queue is never used for another. In a queue of another major version nothing is done.
local function queue_name()
    local name = string.sub(prefix, 8, -2) -- without `kargah:` and `:`
    return string.match(name, '^{([^}]*)}$') or name
end

-- Returns the error to answer with where that queue cannot be read.
local function enter_queue(queue)
    prefix = 'kargah:' .. (string.sub(queue, 1, 1) == '{' and queue or '{' .. queue .. '}') .. ':'
    if not queue_meta() then
        local _, refusal = read_meta()
        return refusal
    end
end

-- What `work` returns, done in that queue; nil where that cannot be read.
local function in_queue(queue, work, ...)
    local home, one, other = prefix, nil, nil
    if not enter_queue(queue) then
        one, other = work(...)
    end
    prefix = home
    return one, other
end
