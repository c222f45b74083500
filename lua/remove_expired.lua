#!lua flags=allow-oom
-- A duty: takes finished jobs whose retention has ended out of the sets: by age, their keys are gone by TTL; and by
-- count, where a finish had too many to end. Bounded.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   limit  number  jobs of each state
-- Returns
--   how many entries were removed
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   removed (of the queue)
-- include: read_meta, end_record, trim_state
local _, _ = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local removed = 0
for _, state in ipairs(FINISHED) do
    local ids = redis.call('ZRANGEBYSCORE', prefix .. 'expires:' .. state, '-inf', '(' .. int(now), 'LIMIT', 0, limit)
    for _, id in ipairs(ids) do
        leave_state(id, state)
        if not has_record(id) then -- else the id lives again
            emit_removed({ id = id, state = state })
        end
    end
    removed = removed + #ids + trim_rest(meta, state, limit)
end
return removed
