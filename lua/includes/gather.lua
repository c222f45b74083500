-- include: prefix, int
-- Changes of sorted sets of jobs, gathered over a call and made with one command a set: at its end, and before that by
-- whoever reads such a set.
local entering, leaving = {}, {} -- by queue, then by set

local function entries_of(gathered, set)
    local sets = gathered[prefix]
    if not sets then
        sets = {}
        gathered[prefix] = sets
    end
    local entries = sets[set]
    if not entries then
        entries = {}
        sets[set] = entries
    end
    return entries
end

local function enter_set(set, score, id)
    local entries = entries_of(entering, set)
    local at = #entries
    entries[at + 1], entries[at + 2] = int(score), id
end

local function leave_set(set, id)
    local entries = entries_of(leaving, set)
    entries[#entries + 1] = id
end

local function write_gathered(command, gathered)
    for queue, sets in pairs(gathered) do
        for set, entries in pairs(sets) do
            redis.call(command, queue .. set, unpack(entries))
        end
    end
end

local function write_sets()
    if next(leaving) then
        write_gathered('ZREM', leaving)
        leaving = {}
    end
    if next(entering) then
        write_gathered('ZADD', entering)
        entering = {}
    end
end
AT_END.gather = write_sets

-- Before a set is read, or written past this.
local function settle_set(set)
    local coming, going = entering[prefix], leaving[prefix]
    if coming and coming[set] or going and going[set] then
        write_sets()
    end
end
