"""What a worker asks for: batches, warm keys, a limit of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.errors import InvalidOption, UnrecoverableError
from orchestrator.group import Batch, RateLimit
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.orchestrator.running import ended

WIDE = JobOptions(batch_key="wide")


async def claimed(scene: Scene, slots: int, wishes: bytes) -> list[str]:
    """The ids of what a worker with wishes gets."""
    claims = await scene.scripts.move_to_active(scene.token(), "w:0", "w", LEASE_MS, INTERVAL_MS, slots, wishes)
    return [claim.job.id for claim in claims.claims]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────


async def test_each_job_of_a_batch_succeeds_or_fails_by_itself(queue: Queue, url: str) -> None:
    jobs = [await queue.add("paint", number, WIDE) for number in range(4)]
    sizes = []

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        sizes.append(len(batch))
        return [UnrecoverableError("odd") if job.data % 2 else job.data * 10 for job in batch]

    async with Worker(queue.name, process, url, batch=Batch(8)):
        done = await ended(queue, *(job.id for job in jobs))
    assert sizes == [4]
    assert [job.state for job in done] == ["completed", "failed", "completed", "failed"]
    assert [job.result_as(int) for job in done if job.state == "completed"] == [0, 20]
    await check_queue(queue)


async def test_a_batch_has_jobs_of_one_key_only_and_a_job_without_a_key_comes_alone(queue: Queue, url: str) -> None:
    await queue.pause()
    jobs = [await queue.add("paint", key, JobOptions(batch_key=key)) for key in ("a", "b", None, "a", None, "b", "a")]
    await queue.resume()
    seen: list[list[str | None]] = []

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        seen.append([job.data for job in batch])
        return [None] * len(batch)

    async with Worker(queue.name, process, url, batch=Batch(2)):
        await ended(queue, *(job.id for job in jobs))
    assert sorted(seen, key=str) == sorted([["a", "a"], ["b", "b"], [None], [None], ["a"]], key=str)


async def test_a_batch_that_raises_fails_all_of_it_and_one_of_a_wrong_length_too(queue: Queue, url: str) -> None:
    jobs = [await queue.add("paint", number, WIDE) for number in range(4)]
    answers: list[Any] = [ValueError("no"), [1]]

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    async with Worker(queue.name, process, url, batch=Batch(2)):
        done = await ended(queue, *(job.id for job in jobs))
    wrong = "a batch processor must return a list of 2 results"
    assert [job.error.message for job in done if job.error] == ["no", "no", wrong, wrong]


async def test_a_canceled_job_leaves_its_batch_and_the_others_go_on(queue: Queue, url: str) -> None:
    jobs = [await queue.add("paint", number, WIDE) for number in range(3)]
    go_on = asyncio.Event()

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        await go_on.wait()
        return ["done"] * len(batch)

    async with Worker(queue.name, process, url, batch=Batch(8), cancel_grace_ms=50) as worker:
        await wait_until(lambda: len(worker._attempts) == 3)
        await queue.cancel(jobs[1].id)
        await ended(queue, jobs[1].id)
        assert len(worker._attempts) == 2
        go_on.set()
        done = await ended(queue, *(job.id for job in jobs))
    assert [job.state for job in done] == ["completed", "canceled", "completed"]


async def test_when_all_have_left_the_processor_is_stopped(queue: Queue, url: str) -> None:
    jobs = [await queue.add("paint", number, JobOptions(batch_key="wide", timeout_ms=50)) for number in range(2)]
    stopped = asyncio.Event()

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return []

    async with Worker(queue.name, process, url, batch=Batch(8), cancel_grace_ms=50):
        done = await ended(queue, *(job.id for job in jobs))
    assert stopped.is_set()
    assert [job.reason for job in done] == ["timeout", "timeout"]


async def test_a_small_batch_lingers_until_it_is_large_enough(queue: Queue, url: str) -> None:
    sizes = []

    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        sizes.append(len(batch))
        return [None] * len(batch)

    async with Worker(queue.name, process, url, batch=Batch(8, min_size=3, linger_ms=60_000)) as worker:
        jobs = [await queue.add("paint", number, WIDE) for number in range(2)]
        await wait_until(worker._claimer.is_looking)
        assert not sizes
        jobs.append(await queue.add("paint", 3, WIDE))
        await ended(queue, *(job.id for job in jobs))
    assert sizes == [3]


async def test_a_small_batch_goes_when_its_oldest_job_has_lingered(queue: Queue, url: str) -> None:
    async def process(batch: list[ActiveJob]) -> Sequence[Any]:
        return [len(batch)] * len(batch)

    async with Worker(queue.name, process, url, batch=Batch(8, min_size=5, linger_ms=300)):
        jobs = [await queue.add("paint", number, WIDE) for number in range(2)]
        done = await ended(queue, *(job.id for job in jobs))
    assert [job.result_as(int) for job in done] == [2, 2]
    assert (done[0].started_at or 0) - done[0].created_at >= 300


async def test_a_worker_that_lingers_leaves_a_wake_up_to_the_others_once(scene: Scene) -> None:
    wishes = b'{"batch":{"min_size":3,"linger_ms":60000}}'

    async def was_left() -> bool:
        return bool(await scene.client.zpopmin(f"{scene.prefix}marker"))

    for job_id in ("a", "b"):
        await scene.add(job_id, batch_key="wide")
        assert await was_left()
        assert await claimed(scene, 4, wishes) == []
        assert await was_left()
        assert await claimed(scene, 4, wishes) == []
        assert not await was_left(), "or it would wake itself for ever"


async def test_jobs_that_may_not_start_neither_fill_a_batch_nor_make_it_linger(scene: Scene) -> None:
    wishes = b'{"batch":{"min_size":3,"linger_ms":60000}}'
    await scene.queue.pause_group("held")
    for number in range(3):
        await scene.add(f"held{number}", group="held", batch_key="wide")
    await scene.change_record("held0", entered_at=1)  # it has waited for long
    await scene.add("a", group="free", batch_key="wide")
    assert await claimed(scene, 4, wishes) == []
    await scene.add("b", batch_key="wide")
    assert await claimed(scene, 4, wishes) == []
    await scene.queue.resume_group("held")
    assert sorted(await claimed(scene, 4, wishes)) == ["b", "held0", "held1", "held2"]
    await check_queue(scene.queue)


async def test_a_batch_whose_rest_may_not_start_takes_no_jobs_of_another_key(scene: Scene) -> None:
    await scene.queue.pause_group("held")
    await scene.add("held", group="held", batch_key="wide")
    await scene.add("a", batch_key="wide")
    await scene.add("b", batch_key="tall")
    assert await claimed(scene, 4, b'{"batch":{"min_size":1,"linger_ms":0}}') == ["a"]
    await check_queue(scene.queue)


async def test_a_batch_respects_groups_that_are_full(scene: Scene) -> None:
    await scene.queue.set_group_concurrency("b", 1)
    for number, group in enumerate("abba"):
        await scene.add(f"{number}{group}", group=group, batch_key="wide")
    assert sorted(await claimed(scene, 4, b'{"batch":{"min_size":1,"linger_ms":0}}')) == ["0a", "1b", "3a"]
    await check_queue(scene.queue)


# ── warm keys ────────────────────────────────────────────────────────────────────────────────────────

WARM = b'{"warm":["warm"],"patience_ms":60000}'


async def test_a_job_whose_key_is_warm_is_preferred(scene: Scene) -> None:
    for job_id, key in (("1", "cold"), ("2", "warm"), ("3", "cold"), ("4", "warm")):
        await scene.add(job_id, affinity_key=key)
    assert [await claimed(scene, 1, WARM) for _ in range(4)] == [["2"], ["4"], ["1"], ["3"]]
    await check_queue(scene.queue)


async def test_none_is_passed_over_for_longer_than_the_patience(scene: Scene) -> None:
    for job_id, key in (("1", "cold"), ("2", "warm"), ("3", "warm")):
        await scene.add(job_id, affinity_key=key)
    assert await claimed(scene, 1, WARM) == ["2"]
    assert "passed_at" in await scene.record("1")
    await scene.change_record("1", passed_at=(await scene.record("1"))["passed_at"] - 60_000)
    assert await claimed(scene, 1, WARM) == ["1"]
    assert "passed_at" not in await scene.record("1")


async def test_affinity_never_crosses_priorities_and_looks_at_a_bounded_window(scene: Scene) -> None:
    await scene.add("soon", affinity_key="cold", priority=1)
    await scene.add("late", affinity_key="warm", priority=2)
    assert await claimed(scene, 1, WARM) == ["soon"]
    await scene.client.delete(f"{scene.prefix}active")
    for number in range(40):
        await scene.add(f"{number}", affinity_key="warm" if number == 39 else "cold", priority=0)
    assert await claimed(scene, 1, WARM) == ["0"]


async def test_a_group_that_was_overtaken_gets_no_more_than_its_share_afterwards(scene: Scene) -> None:
    for number in range(3):
        await scene.add(f"w{number}", group="a", affinity_key="warm")
        await scene.add(f"c{number}", group="b", affinity_key="cold")
    assert [await claimed(scene, 1, WARM) for _ in range(2)] == [["w0"], ["w1"]]
    assert [await claimed(scene, 1, b"") for _ in range(2)] == [["c0"], ["w2"]]


async def test_between_groups_affinity_overtakes_only_within_bounds(scene: Scene) -> None:
    for number in range(12):
        await scene.add(f"w{number}", group="w", affinity_key="warm")
        await scene.add(f"c{number}", group="c", affinity_key="cold")
    order = [(await claimed(scene, 1, WARM))[0][0] for _ in range(12)]
    assert order[:4] == ["w"] * 4, "the warm group leads"
    assert "c" in order[4:7], "but not for ever"
    await check_queue(scene.queue)


async def test_a_worker_tells_its_warm_keys_with_every_claim(queue: Queue, url: str) -> None:
    warm = ["two"]
    seen = []

    async def process(job: ActiveJob) -> None:
        seen.append(job.data)
        warm[0] = job.data

    await queue.pause()
    jobs = [await queue.add("paint", key, JobOptions(affinity_key=key)) for key in ("one", "two", "one", "two")]
    await queue.resume()
    async with Worker(queue.name, process, url, warm_keys=lambda: warm):
        await ended(queue, *(job.id for job in jobs))
    assert seen == ["two", "two", "one", "one"]


# ── a limit of the worker's own ──────────────────────────────────────────────────────────────────────


async def test_a_workers_own_limit_leaves_the_rest_to_others(queue: Queue, url: str) -> None:
    ran: dict[str, int] = {"slow": 0, "free": 0}

    def counting(name: str) -> Any:
        async def process(job: ActiveJob) -> None:
            ran[name] += 1

        return process

    jobs = [await queue.add("paint") for _ in range(20)]
    limiter = RateLimit(2, 60_000)
    async with Worker(queue.name, counting("slow"), url, name="slow", limiter=limiter) as slow:
        await wait_until(lambda: ran["slow"] == 2 and slow._claimer.is_looking())
        async with Worker(queue.name, counting("free"), url, name="free"):
            await ended(queue, *(job.id for job in jobs))
    assert ran == {"slow": 2, "free": 18}


async def test_a_worker_at_its_own_limit_passes_on_the_wake_up_it_took(scene: Scene) -> None:
    await scene.add("a")
    await scene.add("b")
    marker = f"{scene.prefix}marker"
    wishes = b'{"limiter":[1,60000]}'
    assert await claimed(scene, 1, wishes) == ["a"]
    assert await scene.client.zpopmin(marker)
    assert await claimed(scene, 1, wishes) == []
    assert await scene.client.exists(marker)


async def test_a_workers_limit_holds_across_its_restart(queue: Queue, url: str) -> None:
    ran = 0

    async def process(job: ActiveJob) -> None:
        nonlocal ran
        ran += 1

    for _ in range(5):
        await queue.add("paint")
    for _ in range(2):
        worker = Worker(queue.name, process, url, name="slow", limiter=RateLimit(2, 60_000))
        async with worker:
            await wait_until(lambda: ran == 2 and worker._claimer.is_looking())  # noqa: B023
    assert ran == 2


async def test_wrong_wishes_are_refused_by_name(url: str) -> None:
    async def process(job: Any) -> None: ...

    for field, wish in (
        ("limiter.max_starts", {"limiter": RateLimit(0, 10)}),
        ("batch.size", {"batch": Batch(0)}),
        ("batch.min_size", {"batch": Batch(2, min_size=3)}),
        ("affinity_patience_ms", {"affinity_patience_ms": -1}),
    ):
        with pytest.raises(InvalidOption) as refusal:
            Worker("paint", process, url, **wish)
        assert refusal.value.field == field
