#!lua flags=no-writes
-- How a queue is set.
--
-- KEYS
--   meta      hash    the queue's record
--   none      -       never created
-- ARGV
--   names     text    of the record, see lua/README.md
-- Returns
--   the texts of these names, "" where there is none
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
