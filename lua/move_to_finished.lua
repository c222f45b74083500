#!lua flags=allow-oom
-- Ends attempts and claims the next jobs in the same round trip.
--
-- KEYS
--   meta         hash    the queue's record
--   none         -       never created
-- ARGV
--   token        text    request token, `<number in the lane>-<random>`
--   lane         text    `<worker id>:<lane>`
--   worker       text    the worker's name
--   lease_ms     number  how long a claim holds without renewal
--   interval_ms  number  how often this queue is looked after
--   slots        number  how many jobs to claim at most; 0 while stopping
--   then five for each attempt:
--   id           text
--   lease        text    the token of its claim
--   outcome      text    completed | failed | canceled | returned (handed back) | waiting-children:
--                        these two use no attempt
--   content      JSON    the result; the error {kind, message, details}; or what stopped (canceled)
--   pause_ms     number  of a failed one: before the next attempt; -1 = no further attempt
-- Returns
--   {outcomes, claims, sleep_ms}; an outcome is the job's new state or LEASE_LOST; claims as in move_to_active
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   completed, failed, canceled, delayed, waiting, waiting-children; drained (of the queue);
--   and those of move_to_active
-- include: read_meta, lane, leave_active, take_next, finish_job
local _, _ = KEYS[1], KEYS[2]
local token, lane, worker = ARGV[1], ARGV[2], ARGV[3]
local lease_ms, interval_ms, slots = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function retry_later(job, error_json, pause_ms)
    new_sequence(job)
    job.due_at = pause_ms > 0 and now + pause_ms or nil
    if wait_for_children(job, 'active', ',"error":' .. error_json) then
        save_job(job) -- and not before its pause is over
        return
    end
    if pause_ms > 0 then
        add_to_delayed(job, now + pause_ms)
        emit(job, 'delayed', ',"prev":"active","due_at":' .. int(job.due_at) .. ',"error":' .. error_json)
    else
        add_to_wait(job)
        emit(job, 'waiting', ',"prev":"active","error":' .. error_json)
    end
    save_job(job)
end

local function hand_back(job)
    if not wait_for_children(job, 'active') then
        add_to_wait(job)
        emit(job, 'waiting', ',"prev":"active"')
    end
    save_job(job)
end

local function finish_attempt(id, lease, outcome, content, pause_ms)
    local job = check_lease(id, lease)
    if not job then
        return 'LEASE_LOST'
    end
    leave_active(job)
    if outcome ~= 'returned' and outcome ~= 'waiting-children' then
        job.made = (job.made or 0) + 1
    end
    outcome, content = outcome_of_parent(job, outcome, content)
    if outcome == 'completed' then
        job.result, job.error = content, nil
        finish_job(job, 'completed', ',"started_at":' .. int(job.started_at))
    elseif job.cancel then
        cancel_finished(job, outcome == 'canceled' and content or '{}')
    elseif outcome == 'child_failed' then
        fail_finished(job, 'child', content)
    elseif outcome == 'returned' or outcome == 'waiting-children' then
        hand_back(job)
    elseif outcome == 'canceled' then
        job.cancel = '{"by":"worker","reason":""}'
        cancel_finished(job, content)
    elseif pause_ms >= 0 and job.made < (header_of(job).a or 1) then
        job.error = content
        retry_later(job, content, pause_ms)
    else
        fail_finished(job, cjson.decode(content).kind == 'timeout' and 'timeout' or 'error', content)
    end
    return job.state
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = lane_answer(lane, token, (#ARGV - 6) / 5)
if before then
    return { before.outcomes, still_held(before.claims), before.sleep_ms }
end

local outcomes, recorded = {}, false
for i = 7, #ARGV, 5 do
    local outcome = finish_attempt(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4]))
    outcomes[#outcomes + 1] = outcome
    recorded = recorded or outcome ~= 'LEASE_LOST'
end
if recorded and redis.call('EXISTS', prefix .. 'wait', prefix .. 'active') == 0 then
    emit_queue_event('drained', '')
end
local claims, sleep_ms = take_next(meta, token, worker, lease_ms, slots, interval_ms)
remember_lane(lane, token, outcomes, claims, sleep_ms)
return { outcomes, claim_replies(claims), int(sleep_ms) }
