"""What a child's end means to its parent: every policy, every kind of end, and never a parent left waiting (G16)."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.children import ChildState
from orchestrator.errors import UnrecoverableError, WaitingChildrenError
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import Job, JobOptions
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scenarios.flows import POLICIES, child, claim, entry, flow
from tests.lua.scenarios.table import ERROR
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, types
from tests.orchestrator.running import ended

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


# ── how a child ends ─────────────────────────────────────────────────────────────────────────────────


async def fail(scene: Scene) -> str:
    assert await scene.finish(await claim(scene), "failed", ERROR) == "failed"
    return "transient"


async def cancel_waiting(scene: Scene) -> str:
    await scene.queue.cancel("a", "me", "no need")
    return "canceled"


async def cancel_running(scene: Scene) -> str:
    claimed = await claim(scene)
    await scene.queue.cancel("a")
    assert await scene.finish(claimed, "failed", ERROR) == "canceled"
    return "canceled"


async def stall(scene: Scene) -> str:
    await claim(scene)
    await scene.end_leases()
    assert await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10) == 1
    return "stalled"


async def expire(scene: Scene) -> str:
    await scene.pass_deadlines()
    assert await scene.scripts.move_due_jobs(10) == 1
    return "expired"


End = Callable[[Scene], Awaitable[str]]
ENDS: list[End] = [fail, cancel_waiting, cancel_running, stall, expire]
OPTIONS: dict[End, dict[str, int]] = {stall: {"max_stalled": 0}, expire: {"expires_ms": 1000}}


async def family(scene: Scene, policy: str, **options: Any) -> None:
    """A root of some priority with the children `a` and `b`, of which `a` has this policy and these options."""
    entries = [
        entry(scene, "root", children=2, priority=7),
        entry(scene, "a", 1, "root", on_failure=policy, **options),
        entry(scene, "b", 1, "root"),
    ]
    await scene.scripts.add_flow("flow", entries)


async def get(scene: Scene, job_id: str) -> Job:
    job = await scene.queue.get_job(job_id)
    assert job is not None
    return job


@pytest.mark.parametrize("end", ENDS)
async def test_by_default_a_child_that_ends_without_a_result_fails_its_parent_at_once(scene: Scene, end: End) -> None:
    await family(scene, "fail_parent", **OPTIONS.get(end, {}))
    kind = await end(scene)
    root = await get(scene, "root")
    assert root.error is not None
    assert (root.state, root.reason, root.error.kind) == ("failed", "child", kind)
    assert root.error.details == {"queue": scene.queue.name, "job": "a"}
    assert f"job a of queue {scene.queue.name} ended without a result: " in root.error.message
    assert types(await scene.queue.get_history("root")) == ["added", "failed"]
    assert (await get(scene, "b")).state == "waiting", "siblings go on"
    await check_queue(scene.queue)

    assert await scene.finish(await claim(scene)) == "completed"
    assert (await get(scene, "root")).state == "failed"
    assert await scene.queue.get_dependencies_count("root") == (0, 1, 1, 0)
    await check_queue(scene.queue)


@pytest.mark.parametrize("policy", ["ignore", "remove"])
@pytest.mark.parametrize("end", ENDS)
async def test_an_ignored_or_removed_child_is_not_waited_for(scene: Scene, end: End, policy: str) -> None:
    await family(scene, policy, **OPTIONS.get(end, {}))
    kind = await end(scene)
    assert (await get(scene, "root")).state == "waiting-children"
    await check_queue(scene.queue)
    await scene.finish(await claim(scene), content=b'{"b":[]}')
    root = await get(scene, "root")
    assert (root.state, root.priority) == ("waiting", 7)
    assert await scene.queue.get_children_values("root") == {f"{scene.queue.name}:b": {"b": []}}
    failures = await scene.queue.get_ignored_children_failures("root")
    assert [error.kind for error in failures.values()] == ([kind] if policy == "ignore" else [])
    assert await scene.queue.get_dependencies_count("root") == (0, 1, 0, len(failures))
    await check_queue(scene.queue)


@pytest.mark.parametrize("end", ENDS)
async def test_a_child_may_let_its_parent_continue_at_once(scene: Scene, end: End) -> None:
    await family(scene, "continue_parent", **OPTIONS.get(end, {}))
    kind = await end(scene)
    assert (await get(scene, "root")).state == "waiting"
    assert [error.kind for error in (await scene.queue.get_ignored_children_failures("root")).values()] == [kind]
    assert await scene.queue.get_dependencies_count("root") == (1, 0, 0, 1)
    await check_queue(scene.queue)
    assert (await claim(scene)).job.id == "b"
    root = await claim(scene)
    assert root.job.id == "root"
    assert await scene.finish(root) == "completed", "nothing holds it up any more"
    await check_queue(scene.queue)


async def test_a_parent_that_was_let_go_on_may_still_wait_for_the_others(scene: Scene) -> None:
    await family(scene, "continue_parent")
    await fail(scene)
    b, root = await claim(scene), await claim(scene)
    assert await scene.finish(root, "waiting-children") == "waiting-children"
    await check_queue(scene.queue)
    await scene.finish(b)
    assert await scene.finish(await claim(scene)) == "completed"
    history = types(await scene.queue.get_history("root"))
    assert history == ["added", "waiting", "active", "waiting-children", "waiting", "active", "completed"]
    await check_queue(scene.queue)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_removed_child_is_no_child_any_more_whatever_its_policy(scene: Scene, policy: str) -> None:
    await family(scene, policy)
    assert await scene.queue.remove("a")
    assert (await get(scene, "root")).state == "waiting-children"
    await check_queue(scene.queue)
    assert await scene.queue.remove("b")
    assert (await get(scene, "root")).state == "waiting"
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 0, 0)
    await check_queue(scene.queue)


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_attempt_that_fails_but_is_tried_again_is_no_end(scene: Scene, policy: str) -> None:
    await family(scene, policy, attempts=2)
    assert await scene.finish(await claim(scene), "failed", ERROR, 50_000) == "delayed"
    assert (await get(scene, "root")).state == "waiting-children"
    await check_queue(scene.queue)


# ── upwards ──────────────────────────────────────────────────────────────────────────────────────────


async def chain(scene: Scene, *policies: str) -> None:
    """A chain `j0` ← `j1` ← …, `policies` being those of `j1`, `j2` …"""
    entries = [entry(scene, "j0", children=1)]
    for number, policy in enumerate(policies, 1):
        children = 1 if number < len(policies) else 0
        entries.append(entry(scene, f"j{number}", number, f"j{number - 1}", children, on_failure=policy))
    await scene.scripts.add_flow("flow", entries)


async def test_a_failure_goes_up_three_levels_and_every_level_names_where_it_began(scene: Scene) -> None:
    await chain(scene, "fail_parent", "fail_parent", "fail_parent")
    await fail(scene)
    errors = [(await get(scene, f"j{number}")).error for number in range(3)]
    assert errors[0] == errors[1] == errors[2]
    assert errors[0] is not None
    assert errors[0].details["job"] == "j3"
    kept = await scene.queue.get_dependencies("j0", [ChildState.FAILED])
    assert [(one.id, one.error) for one in kept.children] == [("j1", errors[0])]
    events = await scene.queue.events_after("0-0")
    assert events is not None
    assert [event.job for event in events if event.type == "failed"] == ["j3", "j2", "j1", "j0"]
    await check_queue(scene.queue)


async def test_a_failure_goes_up_as_far_as_the_policies_let_it(scene: Scene) -> None:
    await chain(scene, "ignore", "fail_parent", "fail_parent")
    await fail(scene)
    states = [(await get(scene, f"j{number}")).state for number in range(4)]
    assert states == ["waiting", "failed", "failed", "failed"]
    assert list(await scene.queue.get_ignored_children_failures("j0")) == [f"{scene.queue.name}:j1"]
    await check_queue(scene.queue)


async def test_a_failure_goes_up_twenty_levels(scene: Scene) -> None:
    await chain(scene, *["fail_parent"] * 19)
    await fail(scene)
    assert (await scene.queue.get_counts())["failed"] == 20
    await check_queue(scene.queue)


async def test_parents_that_are_not_kept_are_failed_and_gone(scene: Scene) -> None:
    await scene.scripts.add_flow(
        "flow",
        [
            entry(scene, "root", children=1, on_failure="fail_parent"),
            entry(scene, "a", 1, "root", children=1, remove_on_fail=True),
            entry(scene, "aa", 2, "a", remove_on_fail=True),
        ],
    )
    await fail(scene)
    found = await check_queue(scene.queue)
    assert {key for key in found if key.startswith(("state:", "children:"))} == {"state:root", "children:root"}
    assert (await get(scene, "root")).state == "failed"


# ── a parent that runs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", ["completed", "failed", "returned", "waiting-children"])
async def test_a_running_parent_of_a_failed_child_fails_whatever_its_attempt_says(scene: Scene, outcome: str) -> None:
    root = await scene.active("root", attempts=5)
    await child(scene, "a")
    await fail(scene)
    assert (await get(scene, "root")).state == "active"
    await check_queue(scene.queue)
    assert await scene.finish(root, outcome, ERROR, 0) == "failed"
    job = await get(scene, "root")
    assert job.error is not None
    assert (job.reason, job.error.details["job"]) == ("child", "a")
    await check_queue(scene.queue)


async def test_a_running_parent_of_a_failed_child_fails_when_its_worker_is_lost(scene: Scene) -> None:
    await scene.active("root", max_stalled=5)
    await child(scene, "a")
    await fail(scene)
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert types(await scene.queue.get_history("root")) == ["added", "active", "stalled", "failed"]
    assert (await get(scene, "root")).reason == "child"
    await check_queue(scene.queue)


async def test_a_running_parent_is_failed_by_the_first_of_its_children_that_failed(scene: Scene) -> None:
    root = await scene.active("root")
    for job_id in ("a", "b"):
        await child(scene, job_id)
        await fail(scene)
    await scene.finish(root)
    job = await get(scene, "root")
    assert job.error is not None
    assert job.error.details["job"] == "a"
    assert await scene.queue.get_dependencies_count("root") == (0, 0, 2, 0)
    await check_queue(scene.queue)


@pytest.mark.parametrize("outcome", ["completed", "failed", "returned", "waiting-children", "canceled"])
@pytest.mark.parametrize("is_pending", [True, False])
async def test_a_running_parent_that_cannot_complete_is_canceled_when_it_was_to_be(
    scene: Scene, outcome: str, is_pending: bool
) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    if not is_pending:
        await fail(scene)
    await scene.queue.cancel("root", cancel_children=False)
    assert await scene.finish(root, outcome, ERROR) == "canceled"
    await check_queue(scene.queue)


async def test_a_parent_stops_as_canceled_after_a_child_that_failed_it(scene: Scene) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    await fail(scene)
    assert await scene.finish(root, "canceled", b"{}") == "canceled"
    await check_queue(scene.queue)


async def test_a_parent_that_runs_again_is_not_failed_by_what_failed_it_before(scene: Scene) -> None:
    root = await scene.active("root")
    await child(scene, "a")
    await fail(scene)
    await scene.finish(root)
    await scene.queue.retry("root")
    assert await scene.finish(await claim(scene)) == "completed"
    await check_queue(scene.queue)


# ── with real workers (G16) ──────────────────────────────────────────────────────────────────────────

EXPECTED = {"fail_parent": "failed", "ignore": "completed", "remove": "completed", "continue_parent": "completed"}


async def paint(job: ActiveJob) -> object:
    if job.name == "generate":
        raise UnrecoverableError("no such model")
    return [await job.get_children_values(), len(await job.get_ignored_children_failures())]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_parent_is_never_stuck_behind_a_child_that_failed(queue: Queue, url: str, policy: str) -> None:
    async with FlowProducer(url) as flows, Worker(queue.name, paint, url):
        began = time.monotonic()
        options = JobOptions(on_failure=policy, attempts=3)
        tree = await flows.add(FlowJob("upscale", queue.name, children=[FlowJob("generate", queue.name, opts=options)]))
        (root,) = await ended(queue, tree.job.id)
        assert time.monotonic() - began < 1
    assert root.state == EXPECTED[policy]
    if root.state == "completed":
        assert root.result_as(list) == [{}, int(policy != "remove")]
    await check_queue(queue)


@pytest.mark.parametrize("policy", POLICIES)
async def test_nor_behind_a_child_that_was_added_at_run_time(queue: Queue, url: str, policy: str) -> None:
    async def process(job: ActiveJob) -> object:
        if job.name == "upscale" and (await job.get_dependencies_count()) == (0, 0, 0, 0) and job.attempt == 1:
            options = JobOptions(parent=Parent(queue.name, job.id), on_failure=policy)
            await queue.add("generate", None, options)
            raise WaitingChildrenError
        return await paint(job)

    async with Worker(queue.name, process, url, concurrency=2):
        job = await queue.add("upscale")
        (root,) = await ended(queue, job.id)
    assert (root.state, root.attempts_made) == (EXPECTED[policy], int(root.state == "completed"))
    await check_queue(queue)


async def test_a_waiting_parent_expires_like_any_job_that_has_not_started(scene: Scene) -> None:
    await flow(scene, "a", root={"expires_ms": 1000})
    await scene.pass_deadlines()
    await scene.scripts.move_due_jobs(10)
    assert (await get(scene, "root")).reason == "expired"
    await check_queue(scene.queue)
    assert await scene.finish(await claim(scene)) == "completed"
    await check_queue(scene.queue)


async def test_a_parent_that_expires_in_the_same_step_as_its_child_ends_once(scene: Scene) -> None:
    await flow(scene, "a", expires_ms=1000, root={"expires_ms": 1000})
    await scene.pass_deadlines()
    assert await scene.scripts.move_due_jobs(10) == 2
    reasons = [(await get(scene, job_id)).reason for job_id in ("a", "root")]
    assert reasons == ["expired", "child"]
    assert types(await scene.queue.get_history("root")) == ["added", "failed"]
    await check_queue(scene.queue)


async def test_all_children_of_a_crowd_end_and_the_parent_runs_once(queue: Queue, url: str) -> None:
    runs: list[str] = []

    async def process(job: ActiveJob) -> object:
        runs.append(job.name)
        return len(await job.get_children_values()) if job.name == "all" else job.data

    async with FlowProducer(url) as flows:
        tree = await flows.add(FlowJob("all", queue.name, children=[FlowJob("one", queue.name, n) for n in range(120)]))
    async with Worker(queue.name, process, url, concurrency=20), Worker(queue.name, process, url, concurrency=20):

        async def is_done() -> bool:
            root = await queue.get_job(tree.job.id)
            return root is not None and root.state.is_finished

        await wait_until(is_done)
    root = await queue.get_job(tree.job.id)
    assert root is not None
    assert (root.state, root.result_as(int)) == ("completed", 120)
    assert (runs.count("all"), runs.count("one"), runs[-1]) == (1, 120, "all")
    await check_queue(queue)
