-- A whole number as text, exact up to 2^53 (Lua's `..` keeps 14 digits). Scripts write the same few again and again:
-- the newest are remembered, from call to call.
local MOST_WRITTEN = 1000
local WRITTEN_AS, WRITTEN = {}, 0

local function int(number)
    local text = WRITTEN_AS[number]
    if not text then
        if WRITTEN == MOST_WRITTEN then
            WRITTEN_AS, WRITTEN = {}, 0
        end
        text = string.format('%d', number)
        WRITTEN_AS[number], WRITTEN = text, WRITTEN + 1
    end
    return text
end
