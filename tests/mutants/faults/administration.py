"""Administration: cleaning, draining, bulk retries, the end of a queue."""

from tests.mutants.mutant import faults_of

TESTS = (
    "tests/orchestrator/test_cleaning.py",
    "tests/orchestrator/test_bulk.py",
    "tests/orchestrator/test_retention.py",
)
FAULTS = [
    *faults_of("clean.lua", ("birth_of(job) <= tonumber(until_at)", "true", "young waiting jobs are cleaned")),
    *faults_of("drain.lua", ("ids_in(state, 0, limit)", "ids_in(state, 0, limit + 1)", "a step drains one job more")),
    *faults_of(
        "retry_jobs.lua",
        ("'-inf', until_at", "'-inf', '+inf'", "jobs are retried that ended after the call began"),
        ("answer(token, cjson.encode(reply))", "local _ = reply", "a call sent again retries more"),
    ),
    *faults_of("promote_jobs.lua", ("0, limit - 1)", "0, limit)", "a step promotes one job more")),
    *faults_of(
        "change_delay.lua",
        ("redis.call('ZREM', prefix .. 'delayed', wait_member(job))\n", "", "a job is delayed twice"),
        ("now + delay_ms", "job.created_at + delay_ms", "the new delay counts from the add"),
    ),
    *faults_of(
        "obliterate.lua",
        ("if int(meta.epoch) ~= epoch then", "if false then", "a late copy ends another life of the queue"),
        ("limit - removed", "limit", "a step takes as long as it likes"),
        ("running > 0 and not force", "running > 1 and not force", "a running job is removed without force"),
        ("        leave_active(job)\n", "", "a removed job still runs in its group"),
    ),
    *faults_of(
        "forget_keys.lua",
        ("if name ~= 'sweep' and", "if", "files of an obliterated queue stay for ever"),
        (" or has_jobs()", "", "keys go while there are jobs"),
        ("name == 'events' and is_still_told()", "false", "ids of events come again in the next life"),
    ),
    *faults_of("trim_events.lua", ("'=', count", "'~', count", "about so many events stay")),
    *faults_of(
        "add_bulk.lua",
        ("    for gid, more in pairs(by_group) do", "    for gid, more in pairs({}) do", "a bulk overfills a group"),
    ),
    *faults_of("get_position.lua", ("jobs_before(load_group(other), at, cost)", "0", "other groups have no turns")),
    *faults_of(
        "heartbeat.lua",
        ("redis.call('ZREM', prefix .. 'workers', worker)", "local _ = worker", "a worker that left is still counted"),
    ),
]
