-- include: open_queue, answer, add_to_wait, emit, end_record, children
-- Adding, whoever asks for it: what an earlier call under this id or token came to, and storing a job that is new.
local function answer_again(token, id)
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
end

local function store_job(meta, token, id, header_json, data)
    open_queue(meta)
    leave_past(id)
    redis.call('HSET', prefix .. 'job:' .. id, 'def', header_json .. '\n' .. data, 'at', int(now))
    local job = { id = id, stored = {}, token = token, run = 1, seq = 1 }
    local header = cjson.decode(header_json)
    job.header, job.data, job.created_at = header, data, now
    if header.w then
        job.notify = table.concat(header.w, ' ')
    end
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
    job.added = publish(added_text(job))
    if is_wanted(job, 'added') then
        tell_relay(job, 'added', job.added, added_text(job))
    end
    save_job(job)
    return { 'added', job.state, int(now) }
end
