#!lua flags=allow-oom
-- Retries finished jobs by hand, those that finished first, first. Bounded: to be called again.
--
-- KEYS
--   meta   string  the queue's record
--   none   -       never created
-- ARGV
--   token     text    request token
--   state     text    completed | failed | canceled
--   limit     number  jobs
--   until_at  number  only jobs that finished by then; "" = now
-- Returns
--   {how many were retried, how many were looked at, until_at}
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   retried; waiting-children (of its parent); removed (of the queue, for records that had ended)
-- include: read_meta, answer, retry_job
local _, _ = KEYS[1], KEYS[2]
local token, state, limit, until_at = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local _, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return cjson.decode(before)
end
if until_at == '' then
    until_at = int(now)
end
local ids, retried = redis.call('ZRANGEBYSCORE', prefix .. state, '-inf', until_at, 'LIMIT', 0, limit), 0
for _, id in ipairs(ids) do
    local job = load_job(id)
    if job then
        retry_job(job)
        retried = retried + 1
    else
        leave_state(id, state)
        emit_removed({ id = id, state = state })
    end
end
local reply = { int(retried), int(#ids), until_at }
answer(token, cjson.encode(reply))
return reply
