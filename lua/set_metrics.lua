#!lua flags=allow-oom
-- Switches a queue's counters on or off; what was counted stays.
--
-- KEYS
--   meta     string  the queue's record
--   none     -       never created
-- ARGV
--   token    text    request token
--   enabled  flag    "1" or "0"
-- Returns
--   "OK"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   none
-- include: open_queue, answer
local _, _ = KEYS[1], KEYS[2]
local token, enabled = ARGV[1], ARGV[2] == '1'

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
open_queue(meta)
set_meta('metrics', not enabled and 'off' or nil)
return answer(token, 'OK')
