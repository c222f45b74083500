"""Ends of attempts, steps, retries, and the events and records that tell of them."""

from tests.mutants.mutant import faults_of

TESTS = (
    "tests/orchestrator/test_metrics.py",
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
        ("job.seq, job.run,", "job.seq, 1,", "a retried job is in its first run"),
        ("text, 'KEEPTTL')", "text, 'XX')", "a record that ends by itself stays when it is written"),
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
        ("if total ~= before[kind] then", "if total == before[kind] then", "minutes count what did not grow"),
        ("if meta.minute ~= minute then", "if not meta.minute then", "all counts are of the first minute"),
        ("int(total - (before[kind] or 0))", "int(total)", "a minute counts all the ones before it"),
    ),
    *faults_of(
        "includes/job_record.lua",
        ("job.seq > 1 and redis.call", "false and redis.call", "a retry is said to have waited since its add"),
        ("'[^\\n]*$')", "'^[^\\n]*')", "the last but one of a job's events is taken for the newest"),
    ),
    *faults_of(
        "includes/emit.lua",
        ("recent .. '\\n' .. entry or entry", "entry or entry", "an event pushes another one out of the history"),
        ("unpack(entries))", "entry)", "what stood in the record does not come into the list"),
        ("        if #told.texts > 0 then", "        if false then", "the last events of a call are not in the stream"),
        ("    job.recent = nil\n", "", "what is in the list stands in the record, too"),
    ),
]
