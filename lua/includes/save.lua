-- include: prefix
-- Keys and texts that a call writes at its end, in one command: half as dear as one for each. Whoever looks at such a
-- key past the includes that keep it has them written before.
local unsaved = {}

local function write_texts()
    if not next(unsaved) then
        return
    end
    local flat, at = {}, 0
    for key, text in pairs(unsaved) do
        flat[at + 1], flat[at + 2] = key, text
        at = at + 2
    end
    redis.call('MSET', unpack(flat))
    unsaved = {}
end
AT_END.save = write_texts
