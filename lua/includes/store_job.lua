-- include: open_queue, answer, add_to_wait, emit, end_record, dedup_key, count_up, children
-- Adding, whoever asks for it: what an earlier call under this id or token came to, and storing a job that is new.
local function reply_added(state, created_at)
    return 'added ' .. state .. ' ' .. int(created_at)
end

-- Another job is there than the caller meant, or another call has made it.
local function reply_met(outcome, state, created_at, id)
    return outcome .. ' ' .. state .. ' ' .. int(created_at) .. ' ' .. id
end

local function answer_again(token, id)
    local present = load_job(id)
    if present then
        local created_at, _, made_by = birth_of(present)
        if made_by == token then
            return reply_added(present.state, created_at)
        end
        if not answered(token) then
            answer(token, 'duplicated')
            emit_queue_event('duplicated', ',"job":"' .. id .. '"')
        end
        return reply_met('duplicated', present.state, created_at, id)
    end
    local gone = tombstone_of(id)
    if gone and gone.token == token then
        return reply_added(gone.state, gone.created_at)
    end
end

-- `header`: header_json decoded, where the caller has that already.
local function store_job(meta, token, id, header_json, data, header)
    open_queue(meta)
    leave_past(id)
    header = header or cjson.decode(header_json)
    local job = { id = id, run = 1, seq = 1, plain = is_plain(header) or nil, header = header,
        def = header_json .. '\n' .. data }
    unsaved[prefix .. 'job:' .. id] = job.def
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
    local text = added_text(job, now)
    local event_id, ms, number = publish(text)
    tell_relay(job, 'added', event_id, text)
    job.born = pack_birth(now, ms, number, token)
    local is_bare = not (header.w or header.ak or header.bk or header.ch or header.d or header.g or job.ungrouped)
    save_later(job, is_bare)
    count_up('added')
    return reply_added(job.state, now)
end
