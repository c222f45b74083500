"""Time and retention: stalls, deadlines, how long a record is kept and what goes with it."""

from tests.mutants.mutant import faults_of

TESTS = ("tests/orchestrator/test_retention.py", "tests/orchestrator/test_queue_ends.py")
FAULTS = [
    *faults_of(
        "includes/recover_stalled.lua",
        ("return left > 0", "return false", "no grace after the server was away"),
        (
            "math.max(lease_ms / 4, 3 * interval_ms)",
            "math.min(lease_ms / 4, 3 * interval_ms)",
            "grace after every small gap",
        ),
    ),
    *faults_of(
        "includes/recover_job.lua",
        (
            "job.stalled > (header_of(job).m or 1)",
            "job.stalled >= (header_of(job).m or 1)",
            "a job fails one lost worker too early",
        ),
    ),
    *faults_of(
        "includes/end_record.lua",
        (
            "prefix .. state, id)\n    redis.call('ZREM', prefix .. 'expires:' .. state, id)",
            "prefix .. state, id)",
            "a retried job is taken for one whose retention ends",
        ),
        ("redis.call('ZREM', prefix .. 'dead', id)", "local _ = id", "a retried job still counts as dead"),
        ("prefix .. 'lines:' .. job.id, ", "", "a removed job leaves its log"),
        ("redis.call('ZADD', prefix .. 'sweep', int(now), files)", "local _ = files", "pictures stay for ever"),
    ),
    *faults_of(
        "includes/finish_job.lua",
        ("redis.call('PEXPIREAT', prefix .. kind .. job.id, at)", "local _ = kind", "kept jobs never end"),
        ("now + age_s * 1000", "now + age_s", "jobs are kept for milliseconds, not seconds"),
        ("return rule.fa, rule.fc", "return rule.ca, rule.cc", "failed jobs are kept like completed ones"),
        ("not age_s and not count then", "not age_s then", "a worker's rule replaces a job's own count"),
        ("count ~= -1 and count or nil", "count", "who keeps all keeps less than none"),
    ),
    *faults_of(
        "includes/trim_state.lua",
        ("math.min(excess + ended, TRIM_AT_ONCE)", "math.min(excess, TRIM_AT_ONCE) - 1", "one job more is kept"),
        (
            "redis.call('ZRANGE', prefix .. state, 0, limit - 1)",
            "redis.call('ZREVRANGE', prefix .. state, 0, limit - 1)",
            "the newest go, the oldest stay",
        ),
        ("- ended - count", "- count", "what has ended by its age takes the place of what stays"),
        ("if excess <= limit then", "if excess > limit then", "the duty forgets that there is more to end"),
        ("older_than(state, before) >= excess", "older_than(state, before) < excess", "the larger count wins"),
    ),
    *faults_of("remove_expired.lua", ("'(' .. int(now)", "int(now + 1000)", "entries go a second before their keys")),
    *faults_of(
        "get_counts.lua",
        (
            " - redis.call('ZCOUNT', prefix .. 'expires:' .. state, '-inf', int(now))",
            "",
            "what has ended is still counted",
        ),
    ),
]
