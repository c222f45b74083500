-- include: open_queue, answer, add_to_wait, emit, end_record, dedup_key, count_up, children
-- Adding, whoever asks for it: what an earlier call under this id or token came to, and storing a job that is new.
local function reply_to_add(outcome, state, created_at, id)
    return outcome .. ' ' .. state .. ' ' .. int(created_at) .. ' ' .. id
end

local function answer_again(token, id)
    if redis.call('EXISTS', prefix .. 'state:' .. id, prefix .. 'gone:' .. id) == 0 then
        return nil
    end
    local present = load_job(id)
    if present then
        if present.token == token then
            return reply_to_add('added', present.state, present.created_at, id)
        end
        if not answered(token) then
            answer(token, 'duplicated')
            emit_queue_event('duplicated', ',"job":"' .. id .. '"')
        end
        return reply_to_add('duplicated', present.state, present.created_at, id)
    end
    local gone = tombstone_of(id)
    if gone and gone.token == token then
        return reply_to_add('added', gone.state, gone.created_at, id)
    end
end

-- `header`: header_json decoded, where the caller has that already.
local function store_job(meta, token, id, header_json, data, header)
    open_queue(meta)
    leave_past(id)
    header = header or cjson.decode(header_json)
    local job = { id = id, token = token, created_at = now, run = 1, seq = 1, plain = is_plain(header) or nil,
        header = header, def = header_json .. '\n' .. data }
    redis.call('SET', prefix .. 'job:' .. id, job.def)
    if header.w then
        job.notify = table.concat(header.w, ' ')
    end
    job.affinity_key, job.batch_key = header.ak, header.bk
    new_sequence(job)
    if header.ch then
        job.children, job.delay_after = header.ch, header.d
        park(job)
    elseif header.d then
        add_to_delayed(job, now + header.d)
    else
        add_to_wait(job)
    end
    if header.x then
        redis.call('ZADD', prefix .. 'deadlines', int(now + header.x), id)
    end
    if header.dd then
        hold_key(job)
    end
    job.added = publish(added_text(job))
    if is_wanted(job, 'added') then
        tell_relay(job, 'added', job.added, added_text(job))
    end
    save_job(job)
    count_up('added')
    return reply_to_add('added', job.state, now, id)
end
