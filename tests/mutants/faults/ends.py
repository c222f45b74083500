"""Ends of attempts, steps, retries, and the events and records that tell of them."""

from tests.mutants.mutant import faults_of

TESTS = (
    "tests/orchestrator/test_metrics.py",
    "tests/orchestrator/test_queue.py",
    "tests/orchestrator/test_queue_events.py",
    "tests/orchestrator/test_queue_attempts.py",
    "tests/orchestrator/test_steps.py",
    "tests/orchestrator/test_retention.py",
)
FAULTS = [
    *faults_of(
        "includes/finish_attempt.lua",
        ("if not NOT_COUNTED[outcome] then", "if outcome then", "a handed back job uses up an attempt"),
        ("delayed = true, rate_limited = true", "rate_limited = true", "a step that goes on later uses up an attempt"),
        ("job.made < (header_of(job).a or 1)", "job.made <= (header_of(job).a or 1)", "one attempt too many"),
        ("if job.cancel and outcome", "if false and outcome", "a canceled job fails"),
        ("    new_sequence(job)\n    job.due_at", "    job.due_at", "a failed job keeps its place"),
        (
            "local function step_returned(job)\n",
            "local function step_returned(job)\n    new_sequence(job)\n",
            "a handed back job loses its place",
        ),
        ("    if outcome == 'rate_limited' then", "    if false then", "a limit that a job met holds nobody up"),
        ("string.sub(content, 1, line - 1)", "string.sub(content, 1, line)", "an error ends with a newline"),
        ("content, nil, nil", "content, nil, job.stack", "a completed job says where it failed"),
    ),
    *faults_of(
        "save_checkpoint.lua",
        ("number > (job.reported or 0)", "number >= (job.reported or 0)", "a checkpoint sent again is told twice"),
    ),
    *faults_of(
        "includes/retry_job.lua",
        ("leave_state(job.id, prev)", "local _ = leave_state", "a retried job is waiting and finished"),
        (
            "redis.call('PERSIST', prefix .. kind .. job.id)",
            "local _ = kind",
            "a retried job vanishes when its time ends",
        ),
        ("if prev == 'completed' then", "if prev == 'failed' then", "a failed job does its steps again"),
        ("    hold_key_again(job)\n", "", "a retried job does not hold its deduplication key"),
    ),
    *faults_of(
        "includes/emit.lua",
        ("job.seq = job.seq + 1", "job.seq = job.seq", "events are not numbered"),
        (
            "AT_END.emit = tell_watchers",
            "AT_END.emit = function() end; local _ = tell_watchers",
            "who listens hears nothing",
        ),
        ("now - (job.told_at or 0) < PROGRESS_TO_OUTBOX_MS", "false", "the relay hears all progress"),
    ),
    *faults_of(
        "includes/job_record.lua",
        ("job.run, #birth, birth)", "1, #birth, birth)", "a retried job is in its first run"),
        ("packed(job), 'KEEPTTL')", "packed(job))", "a record that ends by itself stays when it is written"),
        (
            "    if unsaved[key] then\n        write_texts()",
            "    if unsaved[key] then",
            "a call does not read what it wrote",
        ),
        (" or header.dd or header.pa", " or header.pa", "an ended job holds its deduplication key"),
        ("header.g or header.ca or", "header.g or", "a completed job is kept for ever"),
    ),
    *faults_of(
        "get_events.lua",
        ("last - number <= breaks", "last - number < breaks", "an entry's first event is none of its own"),
        ("last - number <= breaks", "last - number <= breaks + 1", "an event before those of an entry counts as there"),
        (
            "if entry[1] == event_id then",
            "if entry[1] ~= event_id then",
            "who knows only part of an entry is not covered",
        ),
    ),
    *faults_of(
        "acknowledge.lua",
        (
            "return redis.call('XDEL', prefix .. 'outbox', unpack(ids))",
            "return #ids",
            "what was delivered stays in the outbox",
        ),
    ),
    *faults_of(
        "includes/count_up.lua",
        ("meta[kind] ~= before[kind]", "meta[kind] == before[kind]", "minutes count what did not grow"),
        ("if meta.minute ~= this_minute then", "if meta.minute == 0 then", "all counts are of the first minute"),
        ("int(meta[kind] - before[kind])", "int(meta[kind])", "a minute counts all the ones before it"),
    ),
    *faults_of(
        "includes/history.lua",
        ("elseif job.seq > 1 then", "elseif false then", "a retry is said to have waited since its add"),
        ("job.id, -1), '^[^ ]+')", "job.id, 0), '^[^ ]+')", "the first of the list is taken for a job's newest event"),
        (
            "    if job.began then\n",
            "    if false then\n",
            "what the record told of the start does not come into the list",
        ),
        (
            "    if job.ended then\n",
            "    if false then\n",
            "what the record told of the end does not come into the list",
        ),
        ("    job.began, job.ended = nil, nil\n", "", "what is in the list is told by the record, too"),
    ),
    *faults_of(
        "includes/emit.lua",
        ("if #told.texts > told.written then", "if false then", "the last events of a call are not in the stream"),
        ("    told.written = #texts\n", "", "entries of the stream repeat what the ones before told"),
        ("    if job.seq > 1 then\n", "    if false then\n", "each start is told as if it were the first"),
    ),
    *faults_of(
        "includes/gather.lua",
        (
            "if entering[key] or leaving[key] then",
            "if leaving[key] then",
            "who reads a set does not find what the call put there",
        ),
        (
            "if entering[key] or leaving[key] then",
            "if entering[key] then",
            "who reads a set finds what the call took from it",
        ),
    ),
    *faults_of(
        "includes/read_meta.lua",
        (
            "unsaved[queue .. 'meta'] = pack_meta(meta)",
            "local _ = queue",
            "what a call notes of its queue is lost",
        ),
        ("elseif text and string.byte(text) ~= MAJOR then", "elseif false then", "data of another layout are changed"),
        (
            "        note_event_id(meta, info['last-generated-id'])\n",
            "",
            "a new life's events come before those of the old one",
        ),
    ),
    *faults_of(
        "includes/new_jobs.lua",
        (
            "jobs.are_new and not (was_written or unsaved[prefix .. 'state:' .. job.id])",
            "jobs.are_new",
            "an id twice in a call makes two jobs",
        ),
    ),
    *faults_of(
        "includes/take_next.lua",
        ("save_later(job, job.is_bare)", "save_later(job, true)", "a start forgets what only some jobs have"),
    ),
    *faults_of(
        "includes/finish_job.lua",
        ("job.is_bare and state == 'completed'", "job.is_bare", "a failed job forgets its error"),
    ),
    *faults_of(
        "includes/store_job.lua",
        ("header.ak or header.bk or header.ch", "header.ak or header.ch", "a job forgets that it may join a batch"),
    ),
]
