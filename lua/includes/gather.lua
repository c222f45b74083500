-- include: prefix, int
-- Changes of sorted sets of jobs, gathered over a call and made with one command a set: at its end, and before that by
-- whoever reads such a set.
local entering, leaving = {}, {} -- by key

local function entries_of(gathered, set)
    local key = prefix .. set
    local entries = gathered[key]
    if not entries then
        entries = {}
        gathered[key] = entries
    end
    return entries
end

local function enter_set(set, score, id)
    local entries = entries_of(entering, set)
    entries[#entries + 1] = int(score)
    entries[#entries + 1] = id
end

local function leave_set(set, id)
    local entries = entries_of(leaving, set)
    entries[#entries + 1] = id
end

local function write_sets()
    for key, ids in pairs(leaving) do
        redis.call('ZREM', key, unpack(ids))
    end
    for key, entries in pairs(entering) do
        redis.call('ZADD', key, unpack(entries))
    end
    entering, leaving = {}, {}
end
AT_END.gather = write_sets
