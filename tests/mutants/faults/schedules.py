"""Schedules: slots, iterations, limits and ends."""

from tests.mutants.mutant import faults_of

TESTS = (
    "tests/lua/test_schedule_model.py",
    "tests/orchestrator/test_schedules.py",
    "tests/orchestrator/test_schedules_cron.py",
)
FAULTS = [
    *faults_of(
        "includes/run_schedules.lua",
        ("if unstarted_iteration(schedule) or", "if", "two jobs of a schedule wait at a time"),
        ("schedule.made + 1, id", "schedule.made, id", "a limit on iterations is never reached"),
        ("(missed + 1) * schedule.every_ms", "schedule.every_ms", "missed slots are all made up for"),
        ("if slot > now then", "if slot >= schedule.at then", "a slot of a cron comes again"),
        ("schedule.skipped = schedule.skipped + missed\n", "local _ = missed\n", "missed slots are not counted"),
        ("not job.started and", "true and", "a retry holds up the next slot"),
    ),
    *faults_of(
        "includes/schedule_record.lua",
        ("schedule.made >= schedule.limit", "schedule.made > schedule.limit", "one iteration more than the limit"),
        ("at > schedule.end_at", "at >= schedule.end_at", "a slot at the very end does not count"),
        ("#schedule.slots >= FEW_SLOTS", "#schedule.slots > 0", "a cron asks for slots when it has none"),
    ),
    *faults_of(
        "upsert_job_scheduler.lua",
        ("    remove_iteration(schedule)\n", "    local _ = remove_iteration\n", "another timing leaves the old job"),
        ("replace_iteration(meta, schedule)", "local _ = meta", "a new template does not count for the job that waits"),
        (
            "refuse_closing(meta) or refuse_at_once(meta, schedule)",
            "refuse_closing(meta)",
            "at once is past max_waiting",
        ),
        ("if answered(token) then", "if false then", "a late copy of an upsert undoes the one after it"),
    ),
    *faults_of(
        "fill_schedule.lua",
        ("schedule.version ~= version or ", "", "slots of a former timing are taken"),
    ),
    *faults_of(
        "remove_job_scheduler.lua",
        ("remove_iteration(schedule)", "local _ = schedule", "the job of a removed schedule runs"),
        ("note_first_slot(meta)", "local _ = meta", "a queue looks for schedules that it does not have"),
    ),
]
