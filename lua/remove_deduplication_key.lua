#!lua flags=allow-oom
-- Gives a deduplication key free before its time. A job that was kept back for the end of the holder is added now.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text  request token
--   name   text  the deduplication's id
--   owner  text  only if this job holds it; "" = whoever does
-- Returns
--   "1" when it was held, else "0"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   added, or duplicated (of the queue) when another call made this id
-- include: read_meta, answer, free_key
local _, _ = KEYS[1], KEYS[2]
local token, name, owner = ARGV[1], ARGV[2], ARGV[3]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local value = redis.call('GET', prefix .. 'dedup:' .. name)
if not value or (owner ~= '' and string.match(value, '^%S+') ~= owner) then
    return answer(token, '0')
end
redis.call('DEL', prefix .. 'dedup:' .. name)
store_next(name)
return answer(token, '1')
