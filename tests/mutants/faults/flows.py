"""Flows: who waits for whom, what a parent learns of its children, families that are taken apart."""

from tests.mutants.mutant import faults_of

TESTS = (
    "tests/orchestrator/test_flows_children.py",
    "tests/orchestrator/test_flows_policies.py",
    "tests/orchestrator/test_flows_reading.py",
    "tests/orchestrator/test_flows_steering.py",
    "tests/orchestrator/test_flows_with_others.py",
)
FAULTS = [
    *faults_of(
        "includes/children.lua",
        ("(job.children or 0) > 0 and not job.continued", "(job.children or 0) > 0", "nothing lets a parent go on"),
        (
            "job.due_at or job.delay_after and now",
            "job.delay_after and now",
            "a retried parent does not sit out its pause",
        ),
        (
            "        count_child(job, from, 'p')\n        hold_back",
            "        hold_back",
            "a retried child is not counted",
        ),
        (
            "if from == 'p' and not job.finished_at then",
            "if not job.finished_at then",
            "a child ends twice for its parent",
        ),
        (
            "job.failed_child = job.failed_child or blame",
            "job.failed_child = blame",
            "the last failure is told, not the first",
        ),
        ("policy ~= 'remove' and 'i' or nil", "'i'", "a child that is to be forgotten is not"),
        (
            "policy == 'continue_parent' then",
            "policy ~= 'continue_parent' then",
            "an ignored failure lets its parent go on",
        ),
        (
            "if from ~= 'p' then\n        return false",
            "if not from then\n        return false",
            "an ended child is dropped",
        ),
        ("outcome ~= 'canceled' then", "true then", "a parent that stops is said to have failed"),
        (
            "from ~= 'p' and job.state ~= 'active' then",
            "from ~= 'p' then",
            "a running parent waits for a retried child",
        ),
        ("            leave_waiting(job)\n", "", "a parent that a child fails still waits"),
    ),
    *faults_of(
        "includes/finish_job.lua",
        (
            "    if job.reason == 'child' then\n        return error_json",
            "    if false then\n        return error_json",
            "each level wraps the error",
        ),
        (
            "and has_record(job.id)",
            "",
            "a long result of a job that is gone is lost",
        ),
    ),
    *faults_of(
        "includes/link_child.lua",
        ("    hold_back(job)\n", "", "a waiting job does not wait for its new child"),
        ("    elseif job.finished_at then", "    elseif false then", "a finished job gets children"),
        (
            "count_child(job, from and string.sub(from, 1, 1), 'p')",
            "count_child(job, nil, 'p')",
            "a child that comes again counts twice",
        ),
    ),
    *faults_of(
        "includes/descendants.lua", ("parent[2] == parent_id then", "true then", "a stranger goes with a family")
    ),
    *faults_of(
        "includes/finish_attempt.lua",
        ("    job.continued = nil\n", "", "a parent that was let go on never waits again"),
        ("['waiting-children'] = true,", "", "waiting for children uses up an attempt"),
    ),
    *faults_of(
        "includes/recover_job.lua",
        ("elseif job.failed_child then", "elseif false then", "a lost parent forgets its failed child"),
    ),
    *faults_of(
        "includes/remove_record.lua", ("    tell_parent(job, drop_child)\n", "", "a parent waits for a removed child")
    ),
    *faults_of(
        "includes/promote_due.lua",
        ("if job and not job.finished_at then", "if job then", "a parent ends twice when both come too late"),
    ),
    *faults_of(
        "includes/retry_job.lua",
        ("    tell_parent(job, await_again)\n", "", "a parent does not wait for a child that runs again"),
        ("    if waits_for_children(job) then", "    if false then", "a retried parent does not wait"),
    ),
    *faults_of(
        "remove_job.lua",
        ("local active = active_one(family)", "local active = nil", "a removed family leaves a runner"),
    ),
    *faults_of(
        "remove_unprocessed_children.lua",
        ("elseif not active_one(family) then", "else", "children of a running job are removed"),
    ),
    *faults_of(
        "add_flow.lua",
        (
            "if node.is_new and has_record(node.id) then",
            "if false then",
            "a flow takes a job that is there",
        ),
        ("place.count = place.count + 1", "place.count = 1", "a flow needs one place"),
        ("(gone and gone.token == token)", "false", "a flow sent again after its root was removed comes again"),
    ),
    *faults_of(
        "get_dependencies_count.lua",
        ("all - pending - completed - ignored", "all - pending - completed", "ignored failures count twice"),
    ),
    *faults_of(
        "obliterate.lua", ("        tell_parent(job, drop_child)\n", "", "a parent waits for what was obliterated")
    ),
]
