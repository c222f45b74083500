#!lua flags=allow-oom
-- Sets what is particular to a group: its weight, its limits, whether it is paused. Null = as the queue's defaults say,
-- 0 = no limit.
--
-- KEYS
--   meta     string  the queue's record
--   none     -       never created
-- ARGV
--   token    text  request token
--   gid      text  the group
--   changes  JSON  {weight, concurrency, rate_max, rate_ms, max_waiting, paused, limited_ms}, each if it changes
-- Returns
--   "OK"
-- Errors
--   LAYOUT_MISMATCH
-- Events
--   paused, resumed (of the queue, with the group)
-- include: open_queue, answer, emit, groups, add_to_wait
local _, _ = KEYS[1], KEYS[2]
local token, gid, changes = ARGV[1], ARGV[2], cjson.decode(ARGV[3])

local meta, refusal = read_meta()
if refusal then
    return refusal
end
local before = answered(token)
if before then
    return before
end
open_queue(meta)
local group = load_group(gid)
local key = prefix .. 'ginfo:' .. gid
if changes.limited_ms then
    changes.limited_until, changes.limited_ms = now + changes.limited_ms, nil
end
local was_paused = group.paused ~= nil
if changes.paused == false then
    changes.paused = cjson.null
end
for name, value in pairs(changes) do
    if value == cjson.null then
        group[name] = nil
        redis.call('HDEL', key, name)
    else
        group[name] = value
        redis.call('HSET', key, name, value == true and '1' or exact(value))
    end
end
note_groups()
settle(group)
if group.place ~= 'idle' then
    wake_worker() -- it may start now, or at a time that no sleeping worker knows
end
if group.paused and not was_paused then
    emit_queue_event('paused', ',"group":' .. cjson.encode(gid))
elseif was_paused and not group.paused then
    emit_queue_event('resumed', ',"group":' .. cjson.encode(gid))
end
return answer(token, 'OK')
