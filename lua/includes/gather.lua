-- include: prefix, int
-- Changes of sorted sets of jobs, gathered over a call and made with one command a set: at its end, and before that by
-- whoever reads such a set.
local entering, leaving = {}, {} -- by key

local function enter_set(set, score, id)
    local key = prefix .. set
    local entries = entering[key]
    if not entries then
        entering[key] = { int(score), id }
        return
    end
    local at = #entries
    entries[at + 1], entries[at + 2] = int(score), id
end

local function leave_set(set, id)
    local key = prefix .. set
    local entries = leaving[key]
    if entries then
        entries[#entries + 1] = id
    else
        leaving[key] = { id }
    end
end

local function write_gathered(command, gathered)
    for key, entries in next, gathered do
        redis.call(command, key, unpack(entries))
        gathered[key] = nil
    end
end

local function write_sets()
    write_gathered('ZREM', leaving)
    write_gathered('ZADD', entering)
end
AT_END.gather = write_sets

-- Before a set is read, or written past this.
local function settle_set(set)
    local key = prefix .. set
    if entering[key] or leaving[key] then
        write_sets()
    end
end
