#!lua flags=allow-oom
-- Ends attempts and claims the next jobs in the same round trip.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   token        text    request token, `<number in the lane>-<random>`
--   lane         text    `<worker id>:<lane>`
--   worker       text    the worker's name
--   lease_ms     number  how long a claim holds without renewal
--   interval_ms  number  how often this queue is looked after
--   slots        number  how many jobs to claim at most; 0 while stopping
--   wishes       JSON    as in move_to_active
--   then five for each attempt:
--   id           text
--   lease        text    the token of its claim
--   outcome      text    completed | failed | canceled, or one that uses no attempt: returned (by a worker that stops),
--                        waiting, delayed, rate_limited, waiting-children (by the processor)
--   content      JSON    the result; the error {kind, message, details}, then perhaps a newline and the stack; or what
--                        stopped (canceled)
--   pause_ms     number  before the next attempt (failed; -1 = none follows) or step (delayed); for how long nothing
--                        starts (rate_limited)
--   then, of a worker that has a rule for it:
--   keep         JSON    {ca, cc, fa, fc} as in a header, for jobs whose own say nothing
-- Returns
--   {outcomes, claims, sleep_ms, deaf}; an outcome is the job's new state or LEASE_LOST; claims as in move_to_active
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   completed, failed, canceled, delayed, waiting, waiting-children; drained (of the queue);
--   and those of move_to_active
-- include: read_meta, lane, take_next, finish_attempt, gather
local _, _ = KEYS[1], KEYS[2]
local token, lane, worker = ARGV[1], ARGV[2], ARGV[3]
local lease_ms, interval_ms, slots, wishes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

local function is_drained()
    write_sets()
    return redis.call('EXISTS', prefix .. 'wait', prefix .. 'grouped', prefix .. 'active') == 0
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local count = math.floor((#ARGV - 7) / 5)
local before = lane_answer(lane, token, count)
if before then
    return { before.outcomes, still_held(before.claims), before.sleep_ms, before.deaf }
end

local outcomes, recorded = {}, false
local keep = #ARGV > 7 + 5 * count and cjson.decode(ARGV[#ARGV]) or nil
for i = 8, 7 + 5 * count, 5 do
    local outcome = finish_attempt(meta, keep, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3],
        tonumber(ARGV[i + 4]))
    outcomes[#outcomes + 1] = outcome
    recorded = recorded or outcome ~= 'LEASE_LOST'
end
local claims, sleep_ms, is_deaf = take_next(meta, token, worker, lease_ms, slots, interval_ms, read_wishes(wishes))
if recorded and #claims == 0 and is_drained() then
    emit_queue_event('drained', '')
end
remember_lane(lane, token, outcomes, claims, sleep_ms, is_deaf)
return { outcomes, claim_replies(claims), int(sleep_ms), is_deaf and '1' or '0' }
