-- Keys and texts that a call writes at its end, in one command: half as dear as one for each. Whoever looks at such a
-- key past the includes that keep it has them written before.
local unsaved, was_written = {}, false

local function write_texts()
    if not next(unsaved) then
        return
    end
    local flat, at = {}, 0
    for key, text in next, unsaved do
        flat[at + 1], flat[at + 2] = key, text
        at = at + 2
        unsaved[key] = nil
    end
    redis.call('MSET', unpack(flat))
    was_written = true
end

AT_END.save = function()
    write_texts()
    was_written = false
end
