"""Families that are canceled in steps."""

from tests.mutants.mutant import faults_of

TESTS = ("tests/orchestrator/test_flows_steering.py",)
FAULTS = [
    *faults_of(
        "includes/untold.lua",
        ("        list_children(list, job)\n", "", "only the children of a canceled root are told"),
        ("    local left = redis.call('LLEN', list)\n", "    local left = 0\n", "a large family is told in part"),
        ("        if not job.finished_at then", "        if true then", "a canceled family ends what had ended"),
    ),
    *faults_of(
        "includes/retry_job.lua",
        (
            "redis.call('HDEL', prefix .. 'untold', job.id) == 1",
            "false",
            "who retries a canceled root still cancels it",
        ),
    ),
    *faults_of(
        "move_due_jobs.lua",
        ("redis.call('HRANDFIELD', prefix .. 'untold')", "false", "a family whose canceler died is never told"),
    ),
]
