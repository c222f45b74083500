#!lua
-- Stores a job and queues it.
--
-- KEYS
--   meta        hash    the queue's record
--   none        -       never created; a second key makes a moving slot answer before anything runs
-- ARGV
--   token       text    request token of the caller
--   id          text    the job's id, made by the caller
--   header_json JSON    orchestrator.job.Header
--   data        JSON    one line, opaque
--   outbox_max  number  entries of the outbox above which nothing is added
-- Returns
--   {"added" | "duplicated", state, created_at}
-- Errors
--   LAYOUT_MISMATCH  another major version wrote this queue
--   QUEUE_FULL       the outbox is above its limit: nobody delivers
-- Events
--   added, or duplicated (of the queue) when another call made this id
-- include: open_queue, answer, add_to_wait, emit, end_record
local _, _ = KEYS[1], KEYS[2]
local token, id, header_json, data, outbox_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local meta, refusal = read_meta()
if refusal then
    return refusal
end

local present = load_job(id)
if present then
    header_of(present)
    if present.token == token then
        return { 'added', present.state, int(present.created_at) }
    end
    if not answered(token) then
        answer(token, 'duplicated')
        emit_queue_event('duplicated', ',"job":"' .. id .. '"')
    end
    return { 'duplicated', present.state, int(present.created_at) }
end
local gone = tombstone_of(id)
if gone and gone.token == token then
    return { 'added', gone.state, int(gone.created_at) }
end
if redis.call('XLEN', prefix .. 'outbox') >= outbox_max then
    return redis.error_reply('QUEUE_FULL the outbox holds ' .. int(outbox_max) .. ' undelivered events')
end

open_queue(meta)
leave_past(id)
redis.call('HSET', prefix .. 'job:' .. id, 'def', header_json .. '\n' .. data, 'at', int(now))
local job = { id = id, stored = {}, token = token, run = 1, seq = 1 }
local header = header_of(job)
if header.w then
    job.notify = table.concat(header.w, ' ')
end
new_sequence(job)
if header.d then
    add_to_delayed(job, now + header.d)
else
    add_to_wait(job)
end
if header.x then
    redis.call('ZADD', prefix .. 'deadlines', int(now + header.x), id)
end
job.added = publish(added_text(job))
if is_wanted(job, 'added') then
    tell_relay(job, 'added', job.added, added_text(job))
end
save_job(job)
return { 'added', job.state, int(now) }
