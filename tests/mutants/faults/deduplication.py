"""Deduplication: who holds a key, for how long, and what is kept back."""

from tests.mutants.mutant import faults_of

TESTS = ("tests/orchestrator/test_deduplication.py",)
FAULTS = [
    *faults_of(
        "includes/dedup_key.lua",
        ("redis.call('PTTL', key) < 0", "true", "a retry starts the time of its key anew"),
        ("dd.e or redis.call", "redis.call", "an extended key is not extended by who takes it over"),
        ("holder.id == job.id", "false", "a retry does not take its own key again"),
    ),
    *faults_of(
        "includes/deduplicate.lua",
        (
            "return dd.r and holder.state == 'delayed'",
            "return dd.r and holder.state ~= 'active'",
            "a waiting job is replaced",
        ),
        ("        take_out(holder) -- it has no parent\n", "", "the replaced job stays"),
        ("int(dd.t), 'XX')", "int(dd.t))", "a key that lasts as its job gets a time"),
        ("redis.call('PTTL', key) == -1 and ", "", "one is kept back for the end of a key that is not its job's"),
        ("(holder.state == 'active' or", "(holder.state or", "one is kept back while its holder only waits"),
        ("answer(token, reply_met(", "(reply_met(", "an add sent again is deduplicated by another job"),
        (
            "        redis.call('DEL', next_key)\n        take_out",
            "        take_out",
            "a replaced holder's kept one comes, too",
        ),
    ),
    *faults_of(
        "includes/free_key.lua",
        ("if redis.call('GET', key) ~= job.id then", "if false then", "a job frees the key of another"),
        ("    redis.call('DEL', key)\n    if load_job", "    if load_job", "what was kept back comes again and again"),
        ("        store_next(dd.i)\n", "", "what was kept back is lost"),
        ("'KEEPTTL')", "'PX', int(dd.t))", "the end of a job starts the time of its key anew"),
    ),
    *faults_of("includes/finish_job.lua", ("    free_key(job)\n", "", "a key is held by a job that has ended")),
    *faults_of("includes/remove_record.lua", ("    free_key(job)\n", "", "a key is held by a job that is gone")),
    *faults_of(
        "remove_deduplication_key.lua",
        ("owner ~= '' and ", "", "only the job that holds a key can free it"),
    ),
]
