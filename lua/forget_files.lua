#!lua flags=allow-oom
-- Forgets folders of the storage that have been deleted.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   paths  text  one or more, as they stand in `sweep`
-- Returns
--   how many were forgotten
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta
local _, _ = KEYS[1], KEYS[2]
local paths = { unpack(ARGV) }

local _, refusal = read_meta()
if refusal then
    return refusal
end
return redis.call('ZREM', prefix .. 'sweep', unpack(paths))
