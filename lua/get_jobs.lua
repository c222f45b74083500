#!lua flags=no-writes
-- Reads a page of the jobs of some states, each state's page after the other's.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   start   number  from 0, in each state
--   count   number  at most 100
--   states  text    one or more
-- Returns
--   {jobs, last event id, looked}; waiting and delayed: next first; waiting-children: longest first; finished: newest
--   first. A record that has ended is left out; looked is how many ids the fullest of the states had, so the next page
--   begins at start + looked
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: read_meta, read_jobs
local _, _ = KEYS[1], KEYS[2]
local start, count, states = tonumber(ARGV[1]), tonumber(ARGV[2]), { unpack(ARGV, 3) }

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local jobs, looked = {}, 0
for _, state in ipairs(states) do
    local ids = ids_in(state, start, count)
    for _, job in ipairs(job_replies(ids)) do
        jobs[#jobs + 1] = job
    end
    looked = math.max(looked, #ids)
end
return { jobs, last_event_id(meta), looked }
