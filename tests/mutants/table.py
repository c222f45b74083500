"""The faults: each one edit of one file of lua/, small, and wrong in a way that somebody could have written."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` stands exactly once in `path` (in lua/) and becomes `new`; `fault` says what that breaks."""

    path: str
    old: str
    new: str
    fault: str

    def applied(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError where the edit does not apply any more."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path} has {text.count(self.old)} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


MUTANTS = [
    # ── places: a member left behind, or put elsewhere
    Mutant(
        "includes/leave_active.lua",
        "redis.call('ZREM', prefix .. 'active', job.id)",
        "",
        "an ended attempt stays among the active",
    ),
    Mutant(
        "includes/promote_due.lua",
        "redis.call('ZREM', prefix .. 'delayed', wait_member(job))",
        "",
        "a promoted job stays delayed, too",
    ),
    Mutant(
        "includes/promote_due.lua",
        "redis.call('ZREM', prefix .. 'deadlines', job.id)",
        "",
        "a removed or canceled job keeps its deadline",
    ),
    Mutant(
        "includes/take_next.lua",
        "redis.call('ZREM', prefix .. 'deadlines', job.id)",
        "",
        "a job that has started expires",
    ),
    Mutant(
        "change_priority.lua",
        "redis.call('ZREM', prefix .. 'wait', wait_member(job))",
        "",
        "a job with a new priority waits twice",
    ),
    Mutant(
        "includes/end_record.lua",
        "prefix .. state, id)\n    redis.call('ZREM', prefix .. 'expires:' .. state, id)",
        "prefix .. state, id)",
        "a retried job is taken for one whose retention ends",
    ),
    Mutant(
        "includes/end_record.lua",
        "redis.call('ZREM', prefix .. 'dead', id)",
        "local _ = id",
        "a retried job still counts as dead",
    ),
    Mutant("includes/end_record.lua", "prefix .. 'lines:' .. job.id, ", "", "a removed job leaves its log"),
    Mutant("reprocess_job.lua", "leave_state(id, job.state)", "", "a retried job is waiting and finished"),
    Mutant(
        "reprocess_job.lua",
        "redis.call('PERSIST', prefix .. kind .. id)",
        "local _ = kind",
        "a retried job vanishes when its last run's retention ends",
    ),
    # ── order
    Mutant(
        "includes/add_to_wait.lua",
        "header_of(job).l and MIDDLE - count or MIDDLE + count",
        "header_of(job).l and MIDDLE + count or MIDDLE - count",
        "first in is last out",
    ),
    Mutant("includes/add_to_wait.lua", "'%016x'", "'%x'", "sequences are not compared as numbers of equal length"),
    Mutant(
        "includes/add_to_wait.lua",
        "int(priority_of(job)), wait_member(job)",
        "0, wait_member(job)",
        "priorities do not count",
    ),
    Mutant("includes/take_next.lua", "'ZPOPMIN'", "'ZPOPMAX'", "the last comes first"),
    Mutant("change_priority.lua", "    new_sequence(job)\n", "", "a job with a new priority goes before its equals"),
    Mutant("move_to_finished.lua", "    new_sequence(job)\n", "", "a failed job goes back to the front"),
    Mutant(
        "move_to_finished.lua",
        "local function hand_back(job)\n",
        "local function hand_back(job)\n    new_sequence(job)\n",
        "a handed back job loses its place",
    ),
    # ── leases and tokens
    Mutant("includes/check_lease.lua", " and job.lease == lease", "", "an old token still holds the job"),
    Mutant("includes/check_lease.lua", " and job.state == 'active'", "", "the last token of an ended attempt holds it"),
    Mutant(
        "includes/take_next.lua",
        "redis.call('ZADD', prefix .. 'active', int(now + lease_ms), job.id)",
        "redis.call('ZADD', prefix .. 'active', int(now), job.id)",
        "a claim's lease has run out at once",
    ),
    Mutant("extend_locks.lua", "int(now + lease_ms)", "int(now)", "a renewal ends the lease"),
    Mutant(
        "extend_locks.lua",
        "now - job.cancel_at > cancel_ms",
        "now - job.cancel_at < cancel_ms",
        "a canceled attempt is renewed for ever",
    ),
    Mutant(
        "update_progress.lua",
        "number <= (job.reported or 0)",
        "number < (job.reported or 0)",
        "a report that is sent again counts twice",
    ),
    Mutant(
        "add_log.lua",
        "number > (job.reported or 0)",
        "number >= (job.reported or 0)",
        "a line that is sent again is written twice",
    ),
    Mutant(
        "includes/leave_active.lua",
        "job.reported, job.told_at = nil, nil",
        "job.told_at = nil",
        "the next attempt's first reports are taken for repeats",
    ),
    Mutant("includes/lane.lua", "number < newest", "number > newest", "a late copy of a claim claims again"),
    Mutant(
        "includes/lane.lua",
        "elseif last.token == token then",
        "elseif last.token ~= token then",
        "a lane's next call is answered like its last",
    ),
    Mutant(
        "includes/lane.lua",
        "    for _, claim in ipairs(claims) do",
        "    for _, claim in ipairs({}) do",
        "a claim sent again forgets its jobs",
    ),
    Mutant(
        "cancel_job.lua",
        "return answer(token, job.state)",
        "return job.state",
        "a cancel sent again is refused: it has been done",
    ),
    Mutant("promote.lua", "return answer(token, job.state)", "return job.state", "a promotion sent again is refused"),
    Mutant(
        "remove_job.lua",
        "return answer(token, 'removed')",
        "return 'removed'",
        "a removal sent again says that there was no job",
    ),
    Mutant("includes/answer.lua", "'PX', ANSWER_MS", "'EX', ANSWER_MS", "answers are kept for hours"),
    Mutant(
        "includes/store_job.lua",
        "if gone and gone.token == token then",
        "if false then",
        "an add sent again after the removal makes the job again",
    ),
    Mutant(
        "includes/store_job.lua",
        "if present.token == token then",
        "if present then",
        "two users of one id are both told that they made the job",
    ),
    Mutant("includes/end_record.lua", "    set_tombstone(job, now)\n", "", "a removed job leaves no tombstone"),
    # ── limits
    Mutant(
        "includes/start_limit.lua", "now - past < duration", "now - past <= duration", "the window is one ms too long"
    ),
    Mutant("includes/start_limit.lua", "max - start) or 0", "max - start + 1) or 0", "one start too many in a window"),
    Mutant(
        "includes/start_limit.lua",
        "tonumber(meta.rate_max) - 1)",
        "tonumber(meta.rate_max) - 2)",
        "the window forgets its oldest start",
    ),
    Mutant(
        "includes/start_limit.lua",
        " - redis.call('ZCARD', prefix .. 'active')",
        "",
        "the global concurrency does not count who runs",
    ),
    Mutant("includes/start_limit.lua", "if meta.paused then", "if meta.stopped then", "a paused queue starts jobs"),
    Mutant(
        "includes/start_limit.lua",
        "return 0, tonumber(meta.limited_until) - now",
        "return 0, nil",
        "workers of a limited queue sleep until somebody wakes them",
    ),
    Mutant("set_limits.lua", "wake_worker()", "", "nobody starts what a lifted limit lets go"),
    # ── wake-ups
    Mutant(
        "includes/add_to_wait.lua",
        "wait_member(job))\n    wake_worker()",
        "wait_member(job))",
        "a new job wakes nobody",
    ),
    Mutant("pause.lua", "    wake_worker()\n", "", "a resumed queue sleeps on"),
    Mutant("includes/take_next.lua", "(#claims > 0 or slots == 0) and", "slots == 0 and", "wake-ups do not chain"),
    Mutant(
        "includes/take_next.lua",
        "limited_ms or next_due_ms() or -1",
        "limited_ms or -1",
        "a worker sleeps over a delayed job",
    ),
    # ── time
    Mutant(
        "includes/promote_due.lua",
        "prefix .. 'delayed', '-inf', int(now)",
        "prefix .. 'delayed', '-inf', int(now + 1000)",
        "a delay ends a second early",
    ),
    Mutant("includes/recover_stalled.lua", "return left > 0", "return false", "no grace after the server was away"),
    Mutant(
        "includes/recover_stalled.lua",
        "job.stalled > (header_of(job).m or 1)",
        "job.stalled >= (header_of(job).m or 1)",
        "a job fails one lost worker too early",
    ),
    Mutant(
        "includes/recover_stalled.lua",
        "now - looked_at > math.max(lease_ms / 4, 3 * interval_ms)",
        "now - looked_at > math.min(lease_ms / 4, 3 * interval_ms)",
        "grace after every small gap",
    ),
    # ── retention
    Mutant(
        "includes/finish_job.lua",
        "redis.call('PEXPIREAT', prefix .. kind .. job.id, at)",
        "local _ = kind",
        "kept jobs never end",
    ),
    Mutant(
        "includes/finish_job.lua", "now + age_s * 1000", "now + age_s", "jobs are kept for milliseconds, not seconds"
    ),
    Mutant(
        "includes/finish_job.lua",
        "return header.fa, header.fc",
        "return header.ca, header.cc",
        "failed jobs are kept like completed ones",
    ),
    Mutant(
        "includes/finish_job.lua",
        "math.min(excess, TRIM_AT_ONCE) - 1",
        "math.min(excess, TRIM_AT_ONCE) - 2",
        "one job more than the count is kept",
    ),
    Mutant(
        "includes/finish_job.lua",
        "redis.call('ZRANGE', prefix .. state, 0,",
        "redis.call('ZREVRANGE', prefix .. state, 0,",
        "the newest go, the oldest stay",
    ),
    Mutant(
        "includes/end_record.lua",
        "redis.call('ZADD', prefix .. 'sweep', int(now), files)",
        "local _ = files",
        "the pictures of a removed job stay for ever",
    ),
    Mutant("remove_expired.lua", "'(' .. int(now)", "int(now + 1000)", "entries go a second before their keys"),
    Mutant(
        "get_counts.lua",
        " - redis.call('ZCOUNT', prefix .. 'expires:' .. state, '-inf', int(now))",
        "",
        "what has ended is still counted",
    ),
    # ── ends, events, records
    Mutant(
        "move_to_finished.lua",
        "if outcome ~= 'returned' then",
        "if outcome then",
        "a handed back job uses up an attempt",
    ),
    Mutant(
        "move_to_finished.lua",
        "job.made < (header_of(job).a or 1)",
        "job.made <= (header_of(job).a or 1)",
        "one attempt too many",
    ),
    Mutant("move_to_finished.lua", "elseif job.cancel then", "elseif false then", "a canceled job fails"),
    Mutant("includes/emit.lua", "job.seq = job.seq + 1", "job.seq = job.seq", "events are not numbered"),
    Mutant(
        "includes/emit.lua", "now - (job.told_at or 0) < PROGRESS_TO_OUTBOX_MS", "false", "the relay hears all progress"
    ),
    Mutant(
        "includes/job_record.lua",
        "if job.stored[name] ~= nil then",
        "if false then",
        "a field once set is never cleared",
    ),
    Mutant("get_events.lua", "{ unpack(events, 2) }", "{ unpack(events, 1) }", "a reader gets its last event again"),
    Mutant(
        "acknowledge.lua",
        "return redis.call('XDEL', prefix .. 'outbox', unpack(ids))",
        "return #ids",
        "what was delivered stays in the outbox",
    ),
]
