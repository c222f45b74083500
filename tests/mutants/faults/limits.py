"""Limits on starting: windows, concurrency, pauses."""

from tests.mutants.mutant import faults_of

TESTS = ("tests/orchestrator/test_queue_order.py", "tests/orchestrator/test_cleaning.py")
FAULTS = [
    *faults_of(
        "includes/windows.lua",
        ("now - past < duration", "now - past <= duration", "the window is one ms too long"),
        ("max - start) or 0", "max - start + 1) or 0", "one start too many in a window"),
        ("0, max - 1)", "0, max - 2)", "the window forgets its oldest start"),
        ("redis.call('PEXPIRE', prefix .. key, int(duration))", "local _ = duration", "windows are kept for ever"),
    ),
    *faults_of(
        "includes/start_limit.lua",
        (" - redis.call('ZCARD', prefix .. 'active')", "", "the global concurrency does not count who runs"),
        ("if meta.paused then", "if meta.stopped then", "a paused queue starts jobs"),
        (
            "return 0, tonumber(meta.limited_until) - now",
            "return 0, nil",
            "workers of a limited queue sleep until somebody wakes them",
        ),
        ("if mine < allowed then", "if mine <= allowed then", "the queue's limit is told as the worker's own"),
        ("count_in_window('rate:' .. worker,", "count_in_window('rate',", "a worker's starts count for all"),
    ),
    *faults_of(
        "includes/limit_starts.lua",
        ("until_ms > tonumber(meta.limited_until or 0)", "until_ms > now", "a shorter limit ends a longer one"),
    ),
    *faults_of(
        "includes/refuse_add.lua",
        ("held_jobs() + more <= tonumber(meta", "held_jobs() + more < tonumber(meta", "one job too few"),
        ("redis.call('ZCARD', prefix .. 'delayed') + ", "", "delayed jobs need no room"),
        ("tonumber(meta.closing_until) > now", "tonumber(meta.closing_until) < now", "an obliterated queue takes jobs"),
    ),
]
