"""Places: a member left behind, put elsewhere, or in the wrong order; sleepers whom nobody wakes."""

from tests.mutants.mutant import Mutant, faults_of

TESTS = ("tests/orchestrator/test_queue_order.py", "tests/orchestrator/test_queue_attempts.py")
FAULTS = [
    *faults_of(
        "includes/leave_active.lua",
        (
            "leave_set('active', job.id)",
            "local _ = job",
            "an ended attempt stays among the active",
        ),
        (
            "job.reported, job.told_at = nil, nil",
            "job.told_at = nil",
            "the next attempt's first reports are taken for repeats",
        ),
    ),
    *faults_of(
        "includes/promote_due.lua",
        (
            "    redis.call('ZREM', prefix .. 'delayed', wait_member(job))\n    new_sequence(job)",
            "    new_sequence(job)",
            "a promoted job stays delayed, too",
        ),
        (
            "prefix .. 'delayed', '-inf', int(now)",
            "prefix .. 'delayed', '-inf', int(now + 1000)",
            "a delay ends a second early",
        ),
    ),
    *faults_of(
        "includes/leave_waiting.lua",
        (
            "redis.call('ZREM', prefix .. 'deadlines', job.id)",
            "local _ = job",
            "a removed or canceled job keeps its deadline",
        ),
    ),
    *faults_of(
        "includes/take_next.lua",
        ("redis.call('ZREM', prefix .. 'deadlines', job.id)", "local _ = job", "a job that has started expires"),
        ("'ZPOPMIN'", "'ZPOPMAX'", "the last comes first"),
        ("#claims > 0 or slots == 0", "slots == 0", "wake-ups do not chain"),
        ("next_due_ms(meta, are_any_due) or NEVER", "NEVER", "a worker sleeps over a delayed job"),
    ),
    Mutant(
        "includes/take_next.lua",
        "is_own_limit or not limited_ms",
        "not limited_ms",
        "a worker at its own limit leaves the others asleep",
        ("tests/orchestrator/test_wishes.py",),
    ),
    *faults_of(
        "change_priority.lua",
        ("    leave_wait(job)\n", "", "a job with a new priority waits twice"),
        ("    new_sequence(job)\n", "", "a job with a new priority goes before its equals"),
    ),
    *faults_of(
        "includes/add_to_wait.lua",
        (
            "header.l and MIDDLE - count or MIDDLE + count",
            "header.l and MIDDLE + count or MIDDLE - count",
            "first in is last out",
        ),
        ("'%016x'", "'%x'", "sequences are not compared as numbers of equal length"),
        (
            "enter_set('wait', priority_of(job), member)",
            "enter_set('wait', 0, member)",
            "priorities do not count",
        ),
        ("    end\n    wake_worker()\nend", "    end\nend", "a new job wakes nobody"),
        ("wait_member(job)) == 0 then", "wait_member(job)) == 1 then", "nobody is told of a job that is due sooner"),
    ),
    *faults_of("pause.lua", ("    wake_worker()\n", "", "a resumed queue sleeps on")),
    *faults_of("set_limits.lua", ("wake_worker()", "", "nobody starts what a lifted limit lets go")),
]
