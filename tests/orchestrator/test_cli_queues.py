"""`kargah queues`, `workers`, `schedules` and `jobs --queue`: against a real server, as people and scripts see them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator import cli
from orchestrator.cli import schedules
from orchestrator.cli.queues import _duration_ms, _rate
from orchestrator.errors import InvalidOption
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from tests.lua.scene import Scene


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], url: str, tmp_path: Path) -> Run:
    """Run `kargah` in this process, with the test's server for its Redis."""
    monkeypatch.setenv("KARGAH_REDIS_URL", url)
    monkeypatch.setenv("KARGAH_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["kargah", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
async def scene(queue: Queue) -> Scene:
    """A queue that is known by name."""
    await queue._register()
    return Scene(queue)


def row_of(text: str, word: str) -> list[str]:
    """The words of the one row with `word`."""
    (row,) = [line for line in text.splitlines() if word in line]
    return row.split()


def words(text: str) -> list[str]:
    """The lines with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


# ── queues ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [["queues"], ["queues", "list"]])
async def test_queues_are_listed_with_their_counts(scene: Scene, run: Run, command: list[str]) -> None:
    await scene.completed("a")
    await scene.failed("b")
    await scene.add("c")
    await scene.add("d", delay_ms=50_000)
    await scene.queue.pause()
    await scene.scripts.heartbeat("w", b'{"id":"w"}')
    ended = run(*command)
    assert ended.code == 0
    heading = ended.out.splitlines()[0].split()
    assert heading[:8] == ["QUEUE", "WAITING", "ACTIVE", "DELAYED", "COMPLETED", "FAILED", "CANCELED", "WORKERS"]
    name, *counts, oldest, paused = row_of(ended.out, scene.queue.name)
    assert (name, counts, paused) == (scene.queue.name, ["1", "0", "1", "1", "1", "0", "1"], "paused")
    assert oldest.endswith("s")


async def test_queues_can_be_json(scene: Scene, run: Run) -> None:
    await scene.completed("a")
    found = {each["queue"]: each for each in json.loads(run("queues", "--json").out)}[scene.queue.name]
    assert found["counts"]["completed"] == 1
    assert found["totals"]["completed"] == 1
    assert (found["pending"], found["paused"], found["oldest_waiting_ms"]) == (0, False, None)


async def test_a_queue_is_paused_and_resumed(scene: Scene, run: Run) -> None:
    assert run("queues", "pause", scene.queue.name) == (0, "paused\n", "")
    assert await scene.queue.is_paused()
    assert run("queues", "resume", scene.queue.name) == (0, "resumed\n", "")
    assert not await scene.queue.is_paused()


async def test_a_queue_that_does_not_exist_is_not_made(scene: Scene, run: Run) -> None:
    for command in (["queues", "pause"], ["queues", "limits"], ["queues", "metrics"], ["workers", "-q"]):
        ended = run(*command, "no-such-queue")
        assert ended.code == 2
        assert "no-such-queue: is none of the queues here: " in ended.err
        assert scene.queue.name in ended.err
    assert not await scene.client.exists("kargah:{no-such-queue}:meta")


async def test_limits_are_shown_set_and_lifted(scene: Scene, run: Run) -> None:
    name = scene.queue.name
    assert words(run("queues", "limits", name).out) == ["paused no", "at once any number", "starts any number"]
    ended = run("queues", "limits", name, "--concurrency", "3", "--rate", "10/5s", "--hold", "1h")
    assert words(ended.out)[1:3] == ["at once 3", "starts 10 in any 5000 ms"]
    meta = await scene.queue.get_meta()
    assert (meta.concurrency, meta.rate_max, meta.rate_ms) == (3, 10, 5000)
    assert meta.limited_until is not None
    assert "on hold until" in ended.out
    found = json.loads(run("queues", "limits", name, "--concurrency", "0", "--rate", "0", "--hold", "0", "--json").out)
    assert (found["concurrency"], found["rate_max"], found["limited_until"]) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "starts"),
    [("10/1s", (10, 1000)), ("500/m", (500, 60_000)), ("1/250ms", (1, 250)), ("2/2h", (2, 7_200_000)), ("0", (0, 1))],
)
def test_a_rate_is_read(text: str, starts: tuple[int, int]) -> None:
    assert _rate(text) == starts


@pytest.mark.parametrize("text", ["", "10", "10/", "10/1", "10/1d", "-1/1s", "x/1s", "10/1s ", "١/1s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--rate"):
        _rate(text)


@pytest.mark.parametrize("text", ["", "s", "5", "5d", "-5s", "1.5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--hold"):
        _duration_ms("--hold", text)


async def test_metrics_are_shown_minute_by_minute(scene: Scene, run: Run) -> None:
    await scene.completed("a")
    await scene.failed("b")
    rows = json.loads(run("queues", "metrics", scene.queue.name, "-n", "3", "--json").out)
    assert len(rows) == 3
    assert sum(row["completed"] for row in rows) == 1
    assert sum(row["started"] for row in rows) == 2
    heading, *shown = run("queues", "metrics", scene.queue.name, "-n", "3").out.splitlines()
    assert heading.split()[0] == "MINUTE"
    assert heading.split()[-2:] == ["WAIT", "RUN"]
    assert len(shown) == 3


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────


async def test_workers_are_listed(scene: Scene, run: Run) -> None:
    record = {"id": "w1", "name": "[me]", "queue": scene.queue.name, "concurrency": 4, "active": 1, "host": "h",
              "pid": 7, "info": {"device": "cuda:0", "model": "a b"}}  # fmt: skip
    await scene.scripts.heartbeat("w1", json.dumps(record).encode())
    for command in (["workers"], ["workers", "--queue", scene.queue.name]):
        row = row_of(run(*command).out, scene.queue.name)
        assert row[:5] == [scene.queue.name, "[me]", "h", "7", "1/4"]
        assert row[-3:] == ["device=cuda:0", 'model="a', 'b"']
    (found,) = [each for each in json.loads(run("workers", "--json").out) if each["queue"] == scene.queue.name]
    assert found["info"]["device"] == "cuda:0"
    assert found["started_at"] <= found["last_seen_at"]


async def test_no_workers_is_said_in_words(scene: Scene, run: Run) -> None:
    assert run("workers", "-q", scene.queue.name).out == "no workers\n"


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_jobs_of_any_queue_are_listed(scene: Scene, run: Run) -> None:
    await scene.completed("done")
    await scene.failed("broken")
    await scene.add("waits")
    ended = run("jobs", "list", "--queue", scene.queue.name)
    heading, *rows = ended.out.splitlines()
    assert heading.split() == ["ID", "STATUS", "AGE", "ATTEMPT", "NAME"]
    assert rows[0].split()[:2] == ["waits", "waiting"]
    assert {tuple(row.split()[:2]) for row in rows[1:]} == {("done", "completed"), ("broken", "failed")}
    assert rows[0].split()[3:] == ["0/1", "paint"]
    (failed,) = json.loads(run("jobs", "list", "-q", scene.queue.name, "--status", "failed", "--json").out)
    assert (failed["id"], failed["state"], failed["data"]) == ("broken", "failed", {"x": 1})
    assert len(run("jobs", "list", "-q", scene.queue.name, "-n", "2").out.splitlines()) == 3


async def test_a_job_of_any_queue_is_shown(scene: Scene, run: Run) -> None:
    await scene.failed("broken")
    ended = run("jobs", "show", "broken", "-q", scene.queue.name)
    facts = dict(line.strip().split(maxsplit=1) for line in ended.out.splitlines())
    assert (facts["status"], facts["name"], facts["data"], facts["error"]) == ("failed", "paint", '{"x":1}', "(poison)")
    assert facts["attempt"] == "1 of 1, run 1"
    shown = json.loads(run("jobs", "show", "broken", "-q", scene.queue.name, "--json").out)
    assert shown["error"]["kind"] == "poison"


async def test_jobs_of_any_queue_are_steered(scene: Scene, run: Run) -> None:
    name = scene.queue.name
    await scene.add("late", delay_ms=50_000)
    assert run("jobs", "promote", "late", "-q", name).out == "waiting\n"
    assert run("jobs", "promote", "late", "-q", name).code == 1
    assert run("jobs", "cancel", "late", "-q", name).out == "canceled\n"
    assert run("jobs", "retry", "late", "-q", name).out == "waiting\n"
    (claim,) = (await scene.claim()).claims
    ended = run("jobs", "remove", "late", "-q", name)
    assert ended.code == 1
    assert "is active; cancel it first" in ended.err
    assert run("jobs", "cancel", "late", "-q", name).out == "canceling\n"
    await scene.finish(claim, "canceled", b"{}")
    assert run("jobs", "remove", "late", "-q", name).out == "removed\n"
    assert run("jobs", "remove", "late", "-q", name).out == "there was no such job\n"
    ended = run("jobs", "show", "late", "-q", name)
    assert (ended.code, ended.err) == (1, f"error: there is no job late in the queue {name}\n")


async def test_events_and_log_lines_are_two_things(scene: Scene, run: Run) -> None:
    claim = await scene.active("a")
    for number in range(1, 151):
        await scene.scripts.add_log("a", claim.lease, number, f"[line] {number}")
    await scene.finish(claim)
    events = run("jobs", "events", "a", "--follow", "-q", scene.queue.name).out.splitlines()
    assert [line.split()[1] for line in events] == ["added", "active", "completed"]
    assert "worker=worker" in events[1]
    assert run("jobs", "logs", "a", "-q", scene.queue.name).out.splitlines() == [
        f"[line] {number}" for number in range(1, 151)
    ]
    assert run("jobs", "logs", "b", "-q", scene.queue.name).code == 1


async def test_the_service_s_queue_is_the_default(queue: Queue, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARGAH_QUEUE", queue.name)
    job = await queue.add("paint", None, JobOptions(delay_ms=60_000))
    assert run("jobs", "promote", job.id).out == "waiting\n"
    assert run("jobs", "logs", job.id).out == ""


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────


class FakeRepeat(NamedTuple):
    every_ms: int | None
    cron: str | None
    tz: str = "UTC"


class FakeSchedule(NamedTuple):
    id: str
    name: str
    repeat: FakeRepeat
    next_at: int | None
    made: int


class FakeSchedules:
    """Only what the agreed names promise."""

    def __init__(self) -> None:
        self.kept = {
            "tick": FakeSchedule("tick", "paint", FakeRepeat(1500, None), 1_700_000_000_000, 3),
            "night": FakeSchedule("night", "sweep", FakeRepeat(None, "0 3 * * *", "Europe/Berlin"), None, 0),
        }

    def get_job_schedulers(self, start: int, count: int) -> list[FakeSchedule]:
        return list(self.kept.values())[start : start + count]

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        return self.kept.pop(scheduler_id, None) is not None


async def test_schedules_are_listed_and_removed(scene: Scene, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = FakeSchedules()
    monkeypatch.setattr(schedules, "_with_schedules", lambda queue: fake)
    name = scene.queue.name
    ended = run("schedules", "list", "-q", name)
    assert row_of(ended.out, "tick")[:3] == [name, "tick", "1.5s"]
    assert row_of(ended.out, "tick")[-2:] == ["3", "paint"]
    assert row_of(ended.out, "night")[2:] == ["0", "3", "*", "*", "*", "Europe/Berlin", "–", "0", "sweep"]
    assert len(json.loads(run("schedules", "list", "-q", name, "--json").out)) == 2
    assert run("schedules", "remove", "tick", "-q", name).out == "removed\n"
    ended = run("schedules", "remove", "tick", "-q", name)
    assert (ended.code, ended.err) == (1, f"error: there is no schedule tick in the queue {name}\n")


# ── no Redis ─────────────────────────────────────────────────────────────────────────────────────────


def test_without_redis_it_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KARGAH_REDIS_URL")
    ended = run("queues")
    assert ended.code == 3
    assert "error: no Redis runs with the data of " in ended.err
    assert "Start it, or set KARGAH_REDIS_URL" in ended.err


def test_a_redis_that_does_not_answer_is_told_without_its_password(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.cli.store.DEADLINE_S", 0.1)
    monkeypatch.setenv("KARGAH_REDIS_URL", "redis://me:secret@127.0.0.1:9")
    ended = run("workers")
    assert ended.code == 3
    assert "secret" not in ended.err
    assert "KARGAH_REDIS_URL" in ended.err
