#!lua flags=no-writes
-- Reads how a queue is set.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   names     text    of the record, see lua/README.md
-- Returns
--   what the record has under each of these names, as text; of texts that it does not have ""
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, int
local _, _ = KEYS[1], KEYS[2]
local names = { unpack(ARGV, 1) }

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local texts = {}
for i, name in ipairs(names) do
    local value = meta[name] or ''
    texts[i] = type(value) == 'number' and int(value) or value
end
return texts
