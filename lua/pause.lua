#!lua flags=allow-oom
-- Pauses or resumes a queue: running jobs go on, no other starts.
--
-- KEYS
--   meta    string  the queue's record
--   none    -       never created
-- ARGV
--   token   text    request token
--   paused  flag    "1" or "0"
-- Returns
--   "1" when that changed anything, else "0"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   paused | resumed (of the queue)
-- include: open_queue, answer, emit, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local token, paused = ARGV[1], ARGV[2] == '1'

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
if paused == (meta.paused ~= nil) then
    return answer(token, '0')
end
open_queue(meta)
if paused then
    set_meta('paused', '1')
    redis.call('DEL', prefix .. 'marker')
    emit_queue_event('paused', '')
else
    set_meta('paused', nil)
    wake_worker()
    emit_queue_event('resumed', '')
end
return answer(token, '1')
