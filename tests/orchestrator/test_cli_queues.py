"""`kargah queues`, `workers`, `schedules` and `jobs --queue`: against a real server, as people and scripts see them."""

import inspect
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator import cli
from orchestrator.cli.quantities import duration_ms, rate, whole
from orchestrator.cli.queue_jobs import REASONS
from orchestrator.errors import InvalidOption
from orchestrator.flows import FlowJob, FlowProducer
from orchestrator.group import read_why
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.schedule import JobTemplate, RepeatOptions
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
    assert heading[:5] == ["QUEUE", "WAITING", "ACTIVE", "DELAYED", "WAITING-CHILDREN"]
    assert heading[5:9] == ["COMPLETED", "FAILED", "CANCELED", "WORKERS"]
    name, *counts, oldest, paused = row_of(ended.out, scene.queue.name)
    assert (name, counts, paused) == (scene.queue.name, ["1", "0", "1", "0", "1", "1", "0", "1"], "paused")
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


async def test_a_queue_is_drained_when_that_was_confirmed(
    scene: Scene, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.add("a")
    await scene.add("b", delay_ms=60_000)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("queues", "drain", scene.queue.name).code == 1
    assert (await scene.queue.get_counts())["waiting"] == 1
    assert run("queues", "drain", scene.queue.name, "--yes").out == "removed 1\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run("queues", "drain", scene.queue.name, "--delayed").out.endswith("removed 1\n")
    assert sum((await scene.queue.get_counts()).values()) == 0


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
    assert rate(text) == starts


@pytest.mark.parametrize("text", ["", "10", "10/", "10/1", "10/1d", "-1/1s", "x/1s", "10/1s ", "١/1s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--rate"):
        rate(text)


@pytest.mark.parametrize("text", ["", "s", "5", "5d", "-5s", "1.5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--hold"):
        duration_ms("--hold", text)


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


async def test_schedules_are_listed_and_removed(scene: Scene, run: Run) -> None:
    name, queue = scene.queue.name, scene.queue
    await queue.upsert_job_scheduler("tick", RepeatOptions(every_ms=3_600_000), JobTemplate("paint"))
    await queue.upsert_job_scheduler("night", RepeatOptions(cron="0 3 * * *", tz="Europe/Berlin"), JobTemplate("sweep"))
    await queue.upsert_job_scheduler("over", RepeatOptions(every_ms=60_000, end_at=1))
    ended = run("schedules", "list", "-q", name)
    assert row_of(ended.out, "tick")[:3] == [name, "tick", "3600s"]
    assert row_of(ended.out, "tick")[-2:] == ["1", "paint"]
    assert row_of(ended.out, "night")[2:8] == ["0", "3", "*", "*", "*", "Europe/Berlin"]
    assert row_of(ended.out, "over")[-3:] == ["–", "0", "over"]
    assert len(json.loads(run("schedules", "list", "-q", name, "--json").out)) == 3
    assert run("schedules", "remove", "tick", "-q", name).out == "removed\n"
    ended = run("schedules", "remove", "tick", "-q", name)
    assert (ended.code, ended.err) == (1, f"error: there is no schedule tick in the queue {name}\n")


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────


async def test_groups_are_listed_and_shown(scene: Scene, run: Run) -> None:
    name = scene.queue.name
    assert run("groups", "list", "-q", name).out == "no groups\n"
    for number in range(3):
        await scene.add(f"a{number}", group="ann")
    await scene.queue.set_group_weight("ann", 2.5)
    await scene.queue.pause_group("bob")
    ended = run("groups", "list", "-q", name)
    assert ended.out.splitlines()[0].split()[:5] == ["GROUP", "PLACE", "WAITING", "ACTIVE", "WEIGHT"]
    assert row_of(ended.out, "ann")[:5] == ["ann", "ring", "3", "0", "2.5"]
    assert row_of(ended.out, "bob")[-1] == "paused"
    ended = run("groups", "show", "ann", "-q", name)
    facts = words(ended.out)
    assert "weight 2.5" in facts
    assert "next a0 paint" in facts
    shown = json.loads(run("groups", "show", "ann", "-q", name, "--json").out)
    assert (shown["group"]["waiting"], [job["id"] for job in shown["jobs"]]) == (3, ["a0", "a1", "a2"])


async def test_a_group_is_steered(scene: Scene, run: Run) -> None:
    name, queue = scene.queue.name, scene.queue
    assert run("groups", "pause", "ann", "-q", name).out == "paused\n"
    assert (await queue.get_group("ann")).paused
    assert run("groups", "resume", "ann", "-q", name).out == "resumed\n"
    assert run("groups", "weight", "ann", "4", "-q", name).out == "ann has 4 times the share of a group of weight 1\n"
    ended = run("groups", "limits", "ann", "-q", name, "--concurrency", "2", "--rate", "10/1s", "--max-waiting", "50",
                "--hold", "1h")  # fmt: skip
    assert words(ended.out)[:3] == ["at once 2", "starts 10 in any 1000 ms", "may wait 50"]
    assert "on hold until" in ended.out
    group = await queue.get_group("ann")
    assert (group.weight, group.concurrency, group.rate_max, group.max_waiting) == (4, 2, 10, 50)
    ended = run("groups", "limits", "ann", "-q", name, "--concurrency", "default", "--rate", "default",
                "--max-waiting", "0", "--hold", "0", "--json")  # fmt: skip
    found = json.loads(ended.out)
    assert (found["concurrency"], found["rate_max"], found["max_waiting"]) == (None, None, 0)
    assert run("groups", "weight", "ann", "0", "-q", name).code == 2
    assert run("groups", "limits", "ann", "-q", name, "--rate", "0").code == 2
    assert "--concurrency" in run("groups", "limits", "ann", "-q", name, "--concurrency", "few").err


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("12", 12), ("default", None)])
def test_a_limit_or_the_default_is_read(text: str, number: int | None) -> None:
    assert whole("--concurrency", text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5", "١", "many", "1234567890"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--concurrency"):
        whole("--concurrency", text)


async def test_it_is_said_why_a_job_waits(scene: Scene, run: Run) -> None:
    name, queue = scene.queue.name, scene.queue
    await scene.add("first", group="ann")
    await scene.add("second", group="ann")
    await scene.add("late", delay_ms=50_000)
    await queue.pause_group("ann")
    facts = words(run("jobs", "why", "second", "-q", name).out)
    assert facts[:3] == ["status waiting", "group ann", "before it 1"]
    assert "held its group is paused" in facts
    facts = words(run("jobs", "why", "late", "-q", name).out)
    assert facts[:2] == ["status delayed", "held it is delayed"]
    assert facts[-1].startswith("until ")
    assert json.loads(run("jobs", "why", "late", "-q", name, "--json").out)["held_by"] == ["delayed", "no_worker"]
    await queue.resume_group("ann")
    (claim,) = (await scene.claim()).claims
    assert words(run("jobs", "why", claim.job.id, "-q", name).out)[0] == "status active"
    assert run("jobs", "why", "nobody", "-q", name).code == 1


async def test_a_parent_is_shown_with_what_it_waits_for(scene: Scene, run: Run) -> None:
    name = scene.queue.name
    children = [FlowJob("page", name, opts=JobOptions(id="page"))]
    await FlowProducer(scene.client).add(FlowJob("book", name, opts=JobOptions(id="book"), children=children))
    assert "held its children have not ended" in words(run("jobs", "why", "book", "-q", name).out)
    assert "waits for 1 children" in words(run("jobs", "show", "book", "-q", name).out)
    assert f"parent book in {name}" in words(run("jobs", "show", "page", "-q", name).out)
    listed = run("jobs", "list", "-q", name, "--status", "waiting-children").out.splitlines()
    assert [line.split()[0] for line in listed] == ["ID", "book"]
    assert await scene.queue.count() == 2


async def test_a_flow_is_shown_as_a_tree(scene: Scene, run: Run, url: str) -> None:
    name = scene.queue.name
    leaf = FlowJob("leaf", name, opts=JobOptions(id="leaf"))
    async with FlowProducer(url) as flows:
        branch = FlowJob("branch", name, opts=JobOptions(id="branch"), children=[leaf])
        await flows.add(FlowJob("book", name, opts=JobOptions(id="root"), children=[branch]))
    lines = run("jobs", "tree", "root", "--queue", name).out.splitlines()
    assert [line[: len(line) - len(line.lstrip())] + line.split()[0] for line in lines[1:]] == [
        "root",
        "  branch",
        "    leaf",
    ]
    assert lines[2].split()[1] == "waiting-children"
    shown = json.loads(run("jobs", "tree", "root", "--queue", name, "--depth", "2", "--json").out)
    assert (shown["id"], [child["id"] for child in shown["children"]]) == ("root", ["branch"])
    assert shown["children"][0]["children"] == []
    assert run("jobs", "tree", "nobody", "--queue", name).code == 1


def test_every_reason_has_its_words() -> None:
    source = inspect.getsource(read_why)
    assert set(re.findall(r'^        "([a-z_]+)": ', source, re.MULTILINE)) == set(REASONS)


async def test_a_job_shows_its_group_and_its_checkpoint(scene: Scene, run: Run) -> None:
    await scene.add("a", group="ann", cost=2.5)
    (claim,) = (await scene.claim()).claims
    await scene.scripts.save_checkpoint("a", claim.lease, 1, b'{"step":2}')
    facts = words(run("jobs", "show", "a", "-q", scene.queue.name).out)
    assert "group ann, cost 2.5" in facts
    assert 'checkpoint {"step":2}' in facts


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
