"""Leases and tokens: who holds a job, and what a call that is sent again does."""

from tests.mutants.mutant import Mutant, faults_of

TESTS = ("tests/orchestrator/test_bulk.py", "tests/orchestrator/test_queue_ends.py")
FAULTS = [
    *faults_of(
        "includes/check_lease.lua",
        (" and job.lease == lease", "", "an old token still holds the job"),
        (" and job.state == 'active'", "", "the last token of an ended attempt holds it"),
    ),
    *faults_of(
        "includes/take_next.lua",
        ("'active', now + lease_ms", "'active', now", "a claim's lease is out at once"),
        ("int(#claims + 1)", "int(#claims)", "the leases of a call are numbered from 0"),
    ),
    *faults_of(
        "extend_locks.lua",
        ("int(now + lease_ms)", "int(now)", "a renewal ends the lease"),
        (
            "now - job.cancel_at > cancel_ms",
            "now - job.cancel_at < cancel_ms",
            "a canceled attempt is renewed for ever",
        ),
    ),
    *faults_of(
        "update_progress.lua",
        ("number <= (job.reported or 0)", "number < (job.reported or 0)", "a report that is sent again counts twice"),
    ),
    *faults_of(
        "add_log.lua",
        ("number > (job.reported or 0)", "number >= (job.reported or 0)", "a line that is sent again stands twice"),
    ),
    *faults_of(
        "includes/lane.lua",
        ("number < newest", "number > newest", "a late copy of a claim claims again"),
        ("last_token < token then", "last_token > token then", "a late copy whose number is as long claims again"),
        ("if last_token == token then", "if last_token ~= token then", "a new call is answered like the last"),
        (
            "    for i = 1, #claims do",
            "    for i = 1, 0 do",
            "a claim sent again forgets its jobs",
        ),
    ),
    *faults_of(
        "includes/job_answer.lua",
        ("is_kept and 'kept' or cjson.encode(reply)", "'kept'", "a cancel sent again says that there was no job"),
        ("    answer(token, is_kept", "    local _ = (token and is_kept", "a promotion sent again is refused"),
    ),
    *faults_of(
        "remove_job.lua",
        ("return answer(token, 'removed')", "return 'removed'", "a removal sent again says that there was no job"),
    ),
    *faults_of("includes/answer.lua", ("'PX', ANSWER_MS", "'EX', ANSWER_MS", "answers are kept for hours")),
    *faults_of(
        "includes/store_job.lua",
        ("if gone and gone.token == token then", "if false then", "an add sent again after the removal adds again"),
        ("if made_by == token then", "if made_by then", "two users of one id are both told that they made it"),
    ),
    *faults_of("includes/end_record.lua", ("    set_tombstone(job, now)\n", "", "a removed job leaves no tombstone")),
    *faults_of(
        "add_bulk.lua",
        ("if before or is_repeat then", "if before then", "a bulk sent again adds what has gone in the meantime"),
    ),
    Mutant(
        "add_jobs.lua",
        "or refuse_waiting(meta, 1)",
        "or full",
        "more jobs wait than may",
        ("tests/orchestrator/test_adding_together.py",),
    ),
    *faults_of(
        "includes/new_jobs.lua",
        ("token .. '.' .. int(k)", "token", "all jobs of a call have one token"),
        ("int(k)", "int(#args - k)", "the tokens of a call are counted from its end"),
        ("answer_again(job.token, job.id)", "nil", "an add sent again adds again"),
    ),
    *faults_of(
        "add_jobs.lua",
        ("        or full\n", "", "a full outbox refuses no add"),
        (
            "    return parent and refuse_stranger(parent, job.id)\n        or answer_before(jobs, job)\n        or "
            "full",
            "    return full or parent and refuse_stranger(parent, job.id)\n        or answer_before(jobs, job)",
            "an add sent again to a queue that has filled up is refused",
        ),
        ("refuse_group(header.g, 1)", "full", "more jobs of a group wait than may"),
    ),
]
