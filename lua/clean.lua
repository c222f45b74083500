#!lua flags=allow-oom
-- Removes jobs of a state that are older than a grace time. Bounded: to be called again, from behind the ones it kept.
--
-- KEYS
--   meta      string  the queue's record
--   none      -       never created
-- ARGV
--   token     text    request token
--   state     text    waiting | delayed | completed | failed | canceled
--   start     number  ids to pass over: those that earlier calls kept
--   limit     number  jobs to look at
--   grace_ms  number  a finished job is as old as its end, another one as its add
--   until_at  number  instead of grace_ms: only what is from then or before; "" = grace_ms before now
-- Returns
--   {how many were removed, how many were kept, until_at}
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   cleaned, removed (of the queue); of their parents: waiting, delayed
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, answer, read_jobs, remove_record
local _, _ = KEYS[1], KEYS[2]
local token, state, start, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local grace_ms, until_at = tonumber(ARGV[5]), ARGV[6]

local function candidates()
    if state == 'waiting' or state == 'delayed' then
        return ids_in(state, start, limit)
    end
    return redis.call('ZRANGEBYSCORE', prefix .. state, '-inf', until_at, 'LIMIT', start, limit)
end

local function is_old(job)
    return job.finished_at or birth_of(job) <= tonumber(until_at)
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return cjson.decode(before)
end
if until_at == '' then
    until_at = int(now - grace_ms)
end
local removed, kept = 0, 0
for _, id in ipairs(candidates()) do
    local job = load_job(id)
    if not job then -- gone by its TTL
        leave_state(id, state)
        emit_removed({ id = id, state = state })
    elseif is_old(job) then
        remove_record(job)
        removed = removed + 1
    else
        kept = kept + 1
    end
end
if removed > 0 then
    emit_queue_event('cleaned', ',"state":"' .. state .. '","count":' .. int(removed))
end
local reply = { int(removed), int(kept), until_at }
answer(token, cjson.encode(reply))
return reply
