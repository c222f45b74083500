"""Flows while workers are killed, and after any history of calls: no parent is lost, doubled, or left waiting."""

import contextlib
import random
import signal
from typing import Any

import msgspec
import pytest

from orchestrator.errors import FlowRefused, JobNotFound, WrongState
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.job import JobOptions
from orchestrator.parent import Parent
from orchestrator.queue import Queue
from orchestrator.scripts import Claim, Client
from tests.chaos.checks import LONG_S, Spawn, assert_completed_once, count
from tests.chaos.worker_process import Work
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scenarios.flows import POLICIES
from tests.lua.scenarios.table import ERROR
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

FLOWS = 30
KILLS = 8


def tree(queue: str, name: str) -> FlowJob:
    """A root, two parents, four leaves."""

    def job(job_id: str, *children: FlowJob) -> FlowJob:
        return FlowJob("work", queue, Work(ms=20), JobOptions(id=job_id, max_stalled=20), children)

    parents = [job(f"{name}-{p}", *[job(f"{name}-{p}{n}") for n in "xy"]) for p in "ab"]
    return job(name, *parents)


async def test_flows_survive_kills_of_their_workers(queue: Queue, client: Client, spawn: Spawn) -> None:
    draw = random.Random(4)
    flows = FlowProducer(client)
    for number in range(FLOWS):
        await flows.add(tree(queue.name, f"f{number}"))
    options = {"slots": 4, "lease_ms": 1500, "interval_ms": 300}
    workers = [spawn(**options) for _ in range(3)]
    for kill in range(KILLS):

        async def is_time(done: int = kill * 20) -> bool:
            return await count(queue, "completed") > done

        await wait_until(is_time, LONG_S)
        victim = draw.randrange(3)
        workers[victim].kill()
        workers[victim].wait(10)
        workers[victim] = spawn(**options)

    async def all_done() -> bool:
        return await count(queue, "completed") == 7 * FLOWS

    await wait_until(all_done, LONG_S)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    assert {worker.wait(20) for worker in workers} <= {0, -signal.SIGTERM}
    await check_queue(queue)
    for number in range(FLOWS):
        for job_id in (f"f{number}", f"f{number}-a", f"f{number}-b"):
            starts = await assert_completed_once(queue, job_id)
            released = [event.type for event in await queue.get_history(job_id)][1]
            assert released == "waiting"
            assert starts >= 1
        assert await queue.get_dependencies_count(f"f{number}") == (0, 2, 0, 0)


class Player:
    """Makes calls at random on a queue full of flows; some are refused, as they should be."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.queue = scene.queue
        self.draw = random.Random(seed)
        self.flows = FlowProducer(scene.client)
        self.ids: list[str] = []
        self.held: list[Claim] = []

    async def play(self) -> None:
        """One call."""
        often = [self.add_flow, self.add_child, self.claim, self.claim, self.finish, self.finish, self.finish]
        steering = [self.cancel, self.remove, self.retry, self.forget, self.clear]
        await self.draw.choice([*often, *steering, self.stall, self.wait_long, self.expire])()

    def some(self) -> str:
        return self.draw.choice(self.ids or ["none"])

    def options(self, *, is_child: bool) -> dict[str, Any]:
        draw = self.draw
        self.ids.append(f"j{len(self.ids)}")
        chosen: dict[str, Any] = {"id": self.ids[-1], "attempts": draw.randint(1, 2), "max_stalled": draw.randint(0, 1)}
        chosen |= {"delay_ms": 50_000 if draw.random() < 0.2 else 0, "expires_ms": draw.choice([0, 0, 90_000])}
        chosen |= {"remove_on_fail": draw.random() < 0.2, "remove_on_complete": draw.random() < 0.2}
        return chosen | ({"on_failure": draw.choice(POLICIES)} if is_child else {})

    def flow(self, level: int) -> FlowJob:
        """A tree of at most three levels."""
        width = self.draw.randint(0, 3) if level < 3 else 0
        options = JobOptions(**self.options(is_child=False))
        below = [self.flow(level + 1) for _ in range(width)]
        return FlowJob("p", self.queue.name, None, options, [self.with_policy(child) for child in below])

    def with_policy(self, child: FlowJob) -> FlowJob:
        assert child.opts is not None
        options = msgspec.structs.replace(child.opts, on_failure=self.draw.choice(POLICIES))
        return msgspec.structs.replace(child, opts=options)

    async def add_flow(self) -> None:
        if len(self.ids) < 30:
            await self.flows.add(self.flow(1))

    async def add_child(self) -> None:
        parent = Parent(self.queue.name, self.some())
        if len(self.ids) < 40:
            await self.queue.add("p", None, JobOptions(parent=parent, **self.options(is_child=True)))

    async def claim(self) -> None:
        self.held += (await self.scene.claim(self.draw.randint(1, 3))).claims

    async def finish(self) -> None:
        if self.held:
            held = self.held.pop(self.draw.randrange(len(self.held)))
            outcome = self.draw.choice(["completed", "completed", "failed", "canceled", "returned", "waiting-children"])
            await self.scene.finish(held, outcome, ERROR, self.draw.choice([-1, 0, 50_000]))

    async def cancel(self) -> None:
        await self.queue.cancel(self.some(), cancel_children=self.draw.random() < 0.5)

    async def remove(self) -> None:
        await self.queue.remove(self.some(), remove_children=self.draw.random() < 0.5)

    async def retry(self) -> None:
        await self.queue.retry(self.some())

    async def forget(self) -> None:
        await self.queue.remove_child_dependency(self.some())

    async def clear(self) -> None:
        await self.queue.remove_unprocessed_children(self.some())

    async def stall(self) -> None:
        if self.draw.random() < 0.3:
            await self.scene.end_leases()
            await self.scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 100)

    async def wait_long(self) -> None:
        await self.scene.make_due()
        await self.scene.scripts.move_due_jobs(100)

    async def expire(self) -> None:
        if self.draw.random() < 0.2:
            await self.scene.pass_deadlines()
            await self.scene.scripts.move_due_jobs(100)


@pytest.mark.parametrize("seed", range(12))
async def test_after_any_history_of_calls_all_counts_are_right_and_nobody_is_left_waiting(
    scene: Scene, seed: int
) -> None:
    player = Player(scene, seed)
    for _ in range(80):
        with contextlib.suppress(FlowRefused, JobNotFound, WrongState):
            await player.play()
        await check_queue(scene.queue)

    for _ in range(20):
        await player.wait_long()
        player.held += (await scene.claim(100)).claims
        for held in player.held:
            await scene.finish(held)
        player.held.clear()
    counts = await scene.queue.get_counts()
    assert {state: counts[state] for state in ("waiting", "delayed", "active", "waiting-children")} == {
        "waiting": 0, "delayed": 0, "active": 0, "waiting-children": 0,
    }  # fmt: skip
    await check_queue(scene.queue)
