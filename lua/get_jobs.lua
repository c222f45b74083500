#!lua flags=no-writes
-- Reads a page of the jobs of some states, each state's page after the other's.
--
-- KEYS
--   meta    hash    the queue's record
--   none    -       never created
-- ARGV
--   start   number  from 0, in each state
--   count   number  at most 100
--   states  text    one or more
-- Returns
--   {jobs, last event id}; waiting and delayed: next first; waiting-children: longest first; finished: newest first
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
local jobs = {}
for _, state in ipairs(states) do
    for _, job in ipairs(job_replies(ids_in(state, start, start + count - 1))) do
        jobs[#jobs + 1] = job
    end
end
return { jobs, last_event_id(meta) }
