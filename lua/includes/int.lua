-- A whole number as text, exact up to 2^53 (Lua's `..` keeps 14 digits).
local function int(number)
    return string.format('%.0f', number)
end
