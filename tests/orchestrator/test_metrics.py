"""Counters: each thing is counted once, in its minute; what Prometheus reads is what is there."""

import re
import sys
from typing import Any

import pytest

from orchestrator.active_job import ActiveJob
from orchestrator.backoff import Backoff
from orchestrator.errors import InvalidOption, UnrecoverableError
from orchestrator.job import JobOptions
from orchestrator.metrics import KINDS, MAX_MINUTES, content_type, prometheus_text
from orchestrator.queue import Queue
from orchestrator.scripts import Finish
from orchestrator.worker import Worker
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene
from tests.orchestrator.running import ended

SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


async def totals(queue: Queue) -> dict[str, int]:
    """What has been counted at all, and the sums of times."""
    found = (await queue.get_stats()).totals
    return {kind: total for kind, total in found.items() if total or kind.endswith("_ms")}


def samples(text: str) -> dict[tuple[str, str], float]:
    """(name, labels) → value."""
    return {(name, labels): float(value) for name, labels, value in SAMPLE.findall(text)}


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_everything_that_happens_to_jobs_is_counted_once(queue: Queue, url: str) -> None:
    async def work(job: ActiveJob) -> Any:
        if job.name == "fails":
            raise UnrecoverableError("no")
        if job.name == "retries" and job.attempt == 1:
            raise ValueError("not yet")

    options = JobOptions(attempts=2, backoff=Backoff("fixed", 1))
    jobs = [await queue.add(name, None, options) for name in ("works", "works", "fails", "retries")]
    waits = await queue.add("waits", None, JobOptions(delay_ms=60_000))
    await queue.cancel(waits.id)
    async with Worker(queue.name, work, url, concurrency=2):
        await ended(queue, *[job.id for job in jobs])
    counted = await totals(queue)
    assert counted.pop("wait_ms") >= 0
    assert counted.pop("run_ms") >= 0
    assert counted == {"added": 5, "started": 5, "completed": 3, "failed": 1, "retried": 1, "canceled": 1}


async def test_a_lost_worker_is_counted(scene: Scene) -> None:
    await scene.active("a", max_stalled=0)
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    counted = await totals(scene.queue)
    assert (counted["stalled"], counted["failed"]) == (1, 1)


async def test_a_batch_of_finishes_is_counted_in_one_go(scene: Scene) -> None:
    for number in range(32):
        await scene.add(f"j{number}")
    claims = (await scene.claim(32)).claims
    await scene.client.config_resetstat()
    finishes = [Finish(claim.job.id, claim.lease, "completed", b"1") for claim in claims]
    await scene.scripts.move_to_finished("t", "w:1", "w", LEASE_MS, INTERVAL_MS, 0, finishes)
    commands = await scene.client.info("commandstats")
    assert commands["cmdstat_mset"]["calls"] == 1  # with the records of the jobs
    assert commands.get("cmdstat_hincrby", {"calls": 0})["calls"] <= 9  # the minute may have changed
    assert (await totals(scene.queue))["completed"] == 32


async def test_times_are_summed_up(scene: Scene) -> None:
    await scene.add("a")
    await scene.change_record("a", created_at=1000)  # added in 1970
    (claim,) = (await scene.claim()).claims
    await scene.change_record("a", started_at=(claim.job.started_at or 0) - 5000)
    await scene.finish(claim)
    counted = await totals(scene.queue)
    assert counted["wait_ms"] == (claim.job.started_at or 0) - 1000
    assert 5000 <= counted["run_ms"] < 15_000


async def test_a_repeated_finish_is_not_counted_again(scene: Scene) -> None:
    claim = await scene.active("a")
    finish = [Finish("a", claim.lease, "completed", b"1")]
    for _ in range(2):
        await scene.scripts.move_to_finished("t", "w:1", "w", LEASE_MS, INTERVAL_MS, 0, finish)
    assert (await totals(scene.queue))["completed"] == 1


async def test_counts_are_there_minute_by_minute_and_the_present_one_at_once(scene: Scene) -> None:
    for number in range(3):
        await scene.completed(f"a{number}")
    await scene.pass_minute()
    await scene.pass_minute()
    await scene.completed("b")
    metrics = await scene.queue.get_metrics("completed")
    assert len(metrics.counts) == 60
    assert metrics.counts[-4:] in ([0, 3, 0, 1], [3, 0, 1, 0])  # or a minute has passed in truth
    assert metrics.total == 4
    assert (await scene.queue.get_metrics("failed")).total == 0
    end = metrics.start_minute + 59
    assert (await scene.queue.get_metrics("added", end - 9, end)).counts == [
        *(await scene.queue.get_metrics("added", end - 9, end - 5)).counts,
        *(await scene.queue.get_metrics("added", end - 4, end)).counts,
    ]


async def test_what_was_counted_in_a_minute_ends_after_seven_days(scene: Scene) -> None:
    await scene.completed("a")
    await scene.pass_minute()
    last = int((await scene.meta())["minute"])
    await scene.completed("b")
    ends_at_ms = await scene.client.pexpiretime(f"{scene.prefix}metrics:{last}")
    assert ends_at_ms == (last + 1 + MAX_MINUTES) * 60_000


async def test_a_clock_that_was_set_back_adds_to_the_minute(scene: Scene) -> None:
    await scene.completed("a")
    minute = int((await scene.meta())["minute"])
    await scene.change_meta(minute=minute - 5)
    await scene.completed("b")
    await scene.change_meta(minute=minute - 5)
    await scene.completed("c")
    assert (await scene.queue.get_metrics("completed", minute - 5, minute - 5)).counts == [2]
    assert (await totals(scene.queue))["completed"] == 3


async def test_long_ranges_are_read_in_pages_and_longer_ones_refused(scene: Scene) -> None:
    await scene.completed("a")
    now = (await scene.queue.get_metrics("completed")).start_minute + 59
    week = await scene.queue.get_metrics("completed", now - MAX_MINUTES + 1, now)
    assert len(week.counts) == MAX_MINUTES
    assert week.total == 1
    with pytest.raises(InvalidOption, match="start_minute"):
        await scene.queue.get_metrics("completed", now - MAX_MINUTES, now)
    with pytest.raises(InvalidOption, match="kind: must be one of added"):
        await scene.queue.get_metrics("finished")
    for wrong in (0, -1, True, "1"):
        with pytest.raises(InvalidOption, match="end_minute"):
            await scene.queue.get_metrics("completed", end_minute=wrong)  # type: ignore[arg-type]


async def test_a_range_that_ends_before_it_begins_is_empty(scene: Scene) -> None:
    assert (await scene.queue.get_metrics("completed", 10, 9)).counts == []


async def test_counting_can_be_switched_off_and_on(scene: Scene) -> None:
    await scene.queue.set_metrics(False)
    assert not (await scene.queue.get_meta()).metrics
    await scene.completed("a")
    assert await totals(scene.queue) == {}
    await scene.queue.set_metrics(True)
    await scene.completed("b")
    assert (await totals(scene.queue))["completed"] == 1
    with pytest.raises(InvalidOption, match="enabled"):
        await scene.queue.set_metrics("on")  # type: ignore[arg-type]


async def test_the_stats_tell_what_is_due_and_who_has_waited_longest(scene: Scene) -> None:
    assert (await scene.queue.get_stats()) == (False, 0, 0, None, {})
    for priority in range(20):
        await scene.add(f"p{priority}", priority=priority)
    await scene.add("later", delay_ms=50_000)
    await scene.add("due", delay_ms=1000)
    await scene.client.zadd(f"{scene.prefix}delayed", {await member(scene, "due"): 1})
    await scene.change_record("p7", created_at=1000)
    await scene.queue.pause()
    stats = await scene.queue.get_stats()
    assert (stats.paused, stats.due, stats.workers, stats.totals["added"]) == (True, 1, 0, 22)
    assert stats.oldest_waiting_ms is not None
    assert stats.oldest_waiting_ms > 10**12
    overview = await scene.queue.get_overview()
    assert overview.pending == 21


async def test_a_job_that_came_back_has_waited_since_then(scene: Scene) -> None:
    claim = await scene.active("a", attempts=2)
    await scene.finish(claim, "failed", b'{"kind":"transient","message":"","details":{}}', 0)
    stats = await scene.queue.get_stats()
    assert stats.oldest_waiting_ms is not None
    assert stats.oldest_waiting_ms < 10_000


async def test_the_settings_of_a_queue_can_be_read(queue: Queue) -> None:
    assert await queue.get_meta() == (False, None, None, None, None, True)
    await queue.set_global_concurrency(3)
    await queue.set_global_rate_limit(10, 1000)
    await queue.rate_limit(60_000)
    await queue.pause()
    meta = await queue.get_meta()
    assert meta[:4] == (True, 3, 10, 1000)
    assert (meta.limited_until or 0) > 10**12


async def test_all_queues_that_ever_had_a_job_are_listed(queue: Queue) -> None:
    assert queue.name not in await queue.get_queue_names()
    await queue.add("paint")
    names = await queue.get_queue_names()
    assert queue.name in names
    assert names == sorted(names)


async def test_prometheus_reads_states_counters_and_gauges(scene: Scene) -> None:
    await scene.completed("a")
    await scene.failed("b")
    await scene.add("c")
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    text = await scene.queue.export_prometheus_metrics({"env": "test"})
    found = samples(text)
    queue = f'env="test",queue="{scene.queue.name}"'
    assert found["bullmq_job_count", f'{queue},state="waiting"'] == 1
    assert found["bullmq_job_completed_total", queue] == 1
    assert found["bullmq_job_failed_total", queue] == 1
    assert found["kargah_jobs", f'{queue},state="completed"'] == 1
    assert found["kargah_jobs_completed_total", queue] == 1
    assert found["kargah_jobs_added_total", queue] == 3
    assert found["kargah_jobs_pending", queue] == 1
    assert found["kargah_workers", queue] == 1
    assert found["kargah_queue_paused", queue] == 0
    assert 0 <= found["kargah_oldest_waiting_seconds", queue] < 60
    names = {name for name, _ in found}
    assert {f"kargah_jobs_{kind}_total" for kind in KINDS if not kind.endswith("_ms")} <= names
    assert {"kargah_job_run_seconds_total", "kargah_job_wait_seconds_total"} <= names
    assert "# TYPE kargah_jobs_completed_total counter" in text


async def test_openmetrics_is_spoken_to_who_asks_for_it(queue: Queue) -> None:
    accept = "application/openmetrics-text; version=1.0.0"
    assert content_type(accept).startswith("application/openmetrics-text")
    assert content_type().startswith("text/plain")
    assert prometheus_text([await queue.get_overview()], accept=accept).endswith(b"# EOF\n")


def test_without_prometheus_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    with pytest.raises(InvalidOption, match="kargah\\[server\\]"):
        prometheus_text([])


async def member(scene: Scene, job_id: str) -> str:
    """A job's member in `delayed`."""
    members: list[str] = [each.decode() for each in await scene.client.zrange(f"{scene.prefix}delayed", 0, -1)]
    (found,) = [each for each in members if each[17:] == job_id]
    return found
