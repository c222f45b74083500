#!lua flags=allow-oom
-- Makes delayed jobs wait no longer, those that are due soonest first; their priorities stay. Bounded.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   limit  number  jobs
-- Returns
--   how many jobs were promoted
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   waiting
-- include: read_meta, answer, promote_due
local _, _ = KEYS[1], KEYS[2]
local token, limit = ARGV[1], tonumber(ARGV[2])

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local members = redis.call('ZRANGE', prefix .. 'delayed', 0, limit - 1)
for _, member in ipairs(members) do
    promote_job(load_job(id_of(member)))
end
return answer(token, int(#members))
