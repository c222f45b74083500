"""Groups: the ring, its tags, limits of groups, affinity and batches."""

from tests.mutants.mutant import faults_of

TESTS = ("tests/orchestrator/test_groups.py", "tests/orchestrator/test_wishes.py")
FAULTS = [
    *faults_of(
        "includes/groups.lua",
        (
            "group.tag = math.max(group.tag, virtual_time())\n            end",
            "group.tag = virtual_time()\n            end",
            "leaving the ring pays off all debts",
        ),
        ("                group.tag = math.max(group.tag, virtual_time())\n", "", "idling earns credit"),
        ("cost_of(job) / (group.weight or 1)\n", "cost_of(job) * (group.weight or 1)\n", "the heavier, the less"),
        ("virtual_time()) + cost_of(job) /", "virtual_time()) + 1 /", "costs do not count"),
        ("group.active = group.active + 1", "group.active = group.active", "a group's concurrency never fills"),
        ("group.active = math.max(group.active - 1, 0)", "group.active = 0", "one end frees a whole group"),
        ("group.active >= concurrency", "group.active > concurrency", "one job of a group too many runs"),
        ("        set_meta('vtime', exact(group.tag))\n", "", "virtual time stands still"),
        ("    if group.tag > virtual_time() then", "    if true then", "virtual time goes back"),
        ("redis.call('ZREM', prefix .. PLACES[group.place], group.id)", "local _ = place", "a group is in two places"),
        ("if (group.limited_until or 0) > now then", "if false then", "a limited group starts jobs"),
        ("group[name] or tonumber(", "tonumber(", "a group's own limits do not count"),
        (
            "if group.paused then\n        return NEVER",
            "if group.paused then\n        return now",
            "a paused group is polled",
        ),
        ("priority_of(job) * group.ageing + job.entered_at", "priority_of(job) * group.ageing", "nothing ages"),
        ("        correct(group, job)\n", "", "what an attempt took is not charged"),
        ("measured - cost", "cost - measured", "quick jobs are charged for, slow ones paid"),
        ("or group.active > 0 then", "then", "a group whose jobs run is forgotten"),
        ("    redis.call('ZREM', prefix .. 'grouped', member)\n", "", "a canceled job still counts as waiting"),
        (
            "        if redis.call('EXISTS', prefix .. 'group:' .. gid) == 0 then",
            "        if false then",
            "a group that was emptied stays in the ring",
        ),
    ),
    *faults_of(
        "includes/take_next.lua",
        ("        redis.call('ZREM', prefix .. 'grouped', wait_member(job))\n", "", "a running job counts as waiting"),
        ("fill_batch(job, count - 1, start)", "fill_batch(job, count, start)", "a batch is one larger than asked for"),
        ("        settle_held() --", "        local _ = settle_held --", "a held group never comes back"),
        ("if job.batch_key then", "if false then", "a batch index keeps what was claimed without it"),
        ("may_start(other)", "true", "a batch starts jobs of a full group"),
    ),
    *faults_of(
        "includes/add_to_wait.lua",
        ("    if job.batch_key then", "    if false then", "a removed job stays in its batch"),
        ("job.ungrouped = queue_meta().fair_ungrouped", "job.ungrouped = nil", "jobs without a group do not share"),
        ("job.entered_at or now)", "now)", "a job that shares ages anew each time it comes back"),
    ),
    *faults_of(
        "includes/choose.lua",
        ("heads[job.group or ''] ~= job.score", "false", "a warm key crosses priorities"),
        ("now - job.passed_at >= patience_ms", "now - job.passed_at < patience_ms", "patience is upside down"),
        ("            record.passed_at = now\n", "            local _ = now\n", "who was passed over never learns it"),
        (
            "batch.size >= wish.min_size",
            "batch.size > wish.min_size",
            "a batch lingers that is large enough",
        ),
        ("if may_start(job) then", "if job then", "jobs of a paused group fill a batch"),
        ("redis.call('GET', key) == newest", "false", "two workers that linger wake each other for ever"),
        ("entered_at + wish.linger_ms - now", "entered_at - now", "no batch lingers"),
        ("if other.batch == job.batch_key then", "if other.batch then", "a batch takes jobs of other keys"),
    ),
    *faults_of(
        "includes/refuse_add.lua",
        ("if held + more > most then", "if held > most then", "a group's room is counted after the fact"),
    ),
    *faults_of(
        "set_group_defaults.lua",
        ("'WEIGHTS', 0)", "'WEIGHTS', 1)", "held groups stay held though the limit was lifted"),
    ),
    *faults_of("set_group.lua", ("settle(group)\n", "", "a resumed group is never looked at")),
]
