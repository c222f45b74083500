-- A whole number as text, exact up to 2^53 (Lua's `..` keeps 14 digits). A call writes the same few for all its jobs.
local written_as = {}

local function int(number)
    local text = written_as[number]
    if not text then
        text = string.format('%d', number)
        written_as[number] = text
    end
    return text
end
