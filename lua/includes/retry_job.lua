-- include: prefix, now, int, job_record, add_to_wait, emit, end_record, dedup_key, children
-- A new run of a finished job, with fresh attempts; its history keeps the old one, its priority stays. The checkpoint
-- of one that did not complete stays, too: its steps are not done again.
local OF_A_RUN = { 'started', 'made', 'stalled', 'lease', 'worker', 'started_at', 'finished_at', 'expires_at',
    'progress', 'preview', 'cancel', 'cancel_at', 'reason', 'error', 'stack', 'result',
    'failed_child', 'continued', 'delay_after', 'due_at' }

local function retry_job(job)
    local files, prev = files_of(job), job.state
    settle_history(job)
    if files then
        redis.call('ZADD', prefix .. 'sweep', int(now), files)
    end
    leave_state(job.id, prev)
    for _, kind in ipairs({ 'job:', 'state:', 'log:', 'lines:' }) do
        redis.call('PERSIST', prefix .. kind .. job.id)
    end
    if job.children then
        redis.call('PERSIST', prefix .. 'children:' .. job.id)
    end
    if redis.call('HDEL', prefix .. 'untold', job.id) == 1 then
        redis.call('DEL', prefix .. 'untold:' .. job.id) -- who below it has not been told that it was canceled goes on
    end
    job.run = job.run + 1
    for _, name in ipairs(OF_A_RUN) do
        job[name] = nil
    end
    if prev == 'completed' then
        job.checkpoint = nil -- all its steps are done; one that failed or was canceled goes on after its last step
    end
    new_sequence(job)
    if waits_for_children(job) then
        park(job)
    else
        add_to_wait(job)
    end
    hold_key_again(job)
    emit(job, 'retried', ',"prev":"' .. prev .. '","state":"' .. job.state .. '"')
    save_job(job)
    tell_parent(job, await_again)
end
