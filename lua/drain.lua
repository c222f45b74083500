#!lua flags=allow-oom
-- Removes jobs that wait, those that would start next, first. Bounded: to be called again.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token  text    request token
--   state  text    waiting | delayed
--   limit  number  jobs
-- Returns
--   how many jobs were removed
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   removed (of the queue); of their parents: waiting, delayed
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, answer, read_jobs, remove_record
local _, _ = KEYS[1], KEYS[2]
local token, state, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
local ids = ids_in(state, 0, limit)
for _, id in ipairs(ids) do
    remove_record(load_job(id))
end
return answer(token, int(#ids))
