#!lua flags=allow-oom
-- Begins or goes on to remove all jobs of a queue: no job starts or comes any more. Bounded: to be called until it
-- finds none, then forget_keys removes the rest. Of another life of the queue than the caller's it removes nothing.
--
-- KEYS
--   meta        string  the queue's record
--   none        -       never created
-- ARGV
--   epoch       text    of the life that is to end, as in `meta`
--   force       flag    "1" = running jobs too: their workers lose them
--   limit       number  jobs
--   closing_ms  number  adds are refused for so long from now
-- Returns
--   how many jobs were removed
-- Errors
--   LAYOUT_MISMATCH
--   WRONG_STATE  jobs are running; nothing was changed
-- Events
--   paused, removed (of the queue); of parents in other queues: waiting, delayed
--   added, duplicated (of a job that was kept back by its deduplication key)
-- include: read_meta, read_jobs, leave_active, remove_record, children
local _, _ = KEYS[1], KEYS[2]
local epoch, force, limit, closing_ms = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])

-- Parents before their children, which else would send them back into the queue.
local STATES = { 'waiting-children', 'active', 'waiting', 'delayed', 'completed', 'failed', 'canceled' }

local function remove(id, state)
    local job = load_job(id)
    if not job then -- gone by its TTL
        leave_state(id, state)
    elseif state == 'active' then
        leave_active(job)
        end_record(job)
        emit_removed(job)
        tell_parent(job, drop_child)
        redis.call('PUBLISH', prefix .. 'control', 'cancel ' .. id)
    else
        remove_record(job)
    end
end

local function close(meta)
    if not meta.paused then
        emit_queue_event('paused', '')
    end
    set_meta('paused', '1')
    set_meta('closing_until', int(now + closing_ms))
    redis.call('DEL', prefix .. 'marker')
end

local meta, refusal = read_meta()
if refusal then
    return refusal
end
if int(meta.epoch) ~= epoch then
    return 0
end
local running = redis.call('ZCARD', prefix .. 'active')
if running > 0 and not force then
    return redis.error_reply('WRONG_STATE ' .. int(running) .. ' jobs are running; wait for them, or force it')
end
close(meta)
local removed = 0
for _, state in ipairs(STATES) do
    for _, id in ipairs(ids_in(state, 0, limit - removed)) do
        remove(id, state)
        removed = removed + 1
    end
end
return removed
