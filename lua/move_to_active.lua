#!lua flags=allow-oom
-- Claims waiting jobs for a worker.
--
-- KEYS
--   meta         string  the queue's record
--   none         -       never created
-- ARGV
--   token        text    request token, `<number in the lane>-<random>`; its k-th claim has the lease `<token>.<k>`
--   lane         text    `<worker id>:<lane>`: at most one call is in flight per lane
--   worker       text    the worker's name, for people
--   lease_ms     number  how long a claim holds without renewal
--   interval_ms  number  how often this queue is looked after
--   slots        number  how many jobs at most
--   wishes       JSON    {limiter: [max, ms], warm: [key], patience_ms, batch: {min_size, linger_ms}}; "" = none
-- Returns
--   {claims, sleep_ms, deaf}; a claim is two of the list, a text and the definition. The text is created_at,
--   6 bytes, little-endian; the line `id lease started_at`, and after it ` run started made stalled priority` of a job
--   that does not start for the first time, or has another priority than it was added with; then, where there is any of
--   them, three more lines: cancel, error of the last attempt, checkpoint.
--   sleep_ms = -1: until woken; deaf = "1": waking it before is no use
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   active; and of jobs that were due: added, waiting, waiting-children, stalled, failed, canceled; of their parents:
--   waiting, delayed, failed; removed (of the queue)
--   duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, take_next, lane
local _, _ = KEYS[1], KEYS[2]
local token, lane, worker = ARGV[1], ARGV[2], ARGV[3]
local lease_ms, interval_ms, slots, wishes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = lane_answer(lane, token, 0)
if before then
    return { still_held(before.claims), before.sleep_ms, before.deaf }
end

local claims, sleep_ms, is_deaf = take_next(meta, token, worker, lease_ms, slots, interval_ms, read_wishes(wishes))
remember_lane(lane, token, {}, claims, sleep_ms, is_deaf)
return { claim_replies(claims), int(sleep_ms), is_deaf and '1' or '0' }
