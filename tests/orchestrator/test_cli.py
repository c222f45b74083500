"""The command line against a fake service: what it sends, what it prints, how it ends."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator import cli
from orchestrator.cli.app import app
from orchestrator.settings import Settings
from tests.orchestrator.fake_service import (
    FakeService,
    Request,
    fake_service,
    generation,
    problem,
    says,
    sends,
    sse,
    streams,
)

ID = "0123456789abcdefghjkmnpqrs"
SELF = f"/v1/generations/{ID}"
PNG = b"\x89PNG\r\n\x1a\n..."


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as service:
        service.on("POST /v1/generations", says(generation(), 202))
        service.on(f"GET {SELF}", says(generation(status="completed", images=pictures(1))))
        for index in range(3):
            service.on(f"GET {SELF}/images/{index}", sends(PNG + bytes([index]), "image/png"))
        yield service


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `kargah` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["kargah", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return run


def pictures(count: int) -> list[dict[str, object]]:
    return [
        {"index": index, "url": f"{SELF}/images/{index}", "width": 64, "height": 64, "seed": 7 + index, "bytes": 12}
        for index in range(count)
    ]


def progress(step: int) -> dict[str, object]:
    return {"phase": "denoising", "step": step, "steps": 20, "fraction": step / 20, "eta_ms": 1500}


def finished(event_type: str = "completed") -> str:
    return sse("active", "2-0") + sse("progress", "3-0", progress=progress(5)) + sse(event_type, "4-0") + sse("end")


def test_generate_saves_the_picture_and_prints_only_its_name_to_stdout(service: FakeService, run: Run) -> None:
    service.on(f"GET {SELF}/events", streams(sse("snapshot", generation=generation()), finished()))
    ended = run(
        "generate",
        "a red circle",
        "--seed",
        "7",
        "--size",
        "64x48",
        "--steps",
        "20",
        "-o",
        "out.png",
        "--url",
        service.url,
    )
    assert (ended.code, ended.out) == (0, "out.png\n")
    assert Path("out.png").read_bytes() == PNG + b"\0"
    assert ended.err.splitlines() == ["waiting", "starting", "denoising", "64×64, seed 7, 12 bytes"]
    sent = service.requests[0].body
    assert {name: sent[name] for name in ("prompt", "seed", "width", "height", "steps")} == {
        "prompt": "a red circle",
        "seed": 7,
        "width": 64,
        "height": 48,
        "steps": 20,
    }


def test_pictures_are_named_after_prompt_and_seed_when_no_name_is_given(service: FakeService, run: Run) -> None:
    service.on(f"GET {SELF}/events", streams(finished()))
    assert run("generate", "a red circle", "--url", service.url).out == "a-red-circle-7.png\n"
    service.on(f"GET {SELF}", says(generation(status="completed", images=pictures(3))))
    service.on(f"GET {SELF}/events", streams(finished()))
    assert run("generate", "a red circle", "-n", "3", "-o", "c.png", "--url", service.url).out.split() == [
        "c-1.png",
        "c-2.png",
        "c-3.png",
    ]


def test_a_picture_can_be_piped(service: FakeService) -> None:
    service.on(f"GET {SELF}/events", streams(finished()))
    ended = kargah("generate", "a red circle", "-o", "-", "--url", service.url)
    assert ended.communicate(timeout=30)[0] == PNG + b"\0"


def test_a_failure_is_told_with_its_reason_and_exit_code(service: FakeService, run: Run) -> None:
    error = {"kind": "out_of_memory", "message": "the device has 2 GB", "details": {}}
    retry = sse("delayed", "2-0", at=1000, attempt=1, due_at=6000, error=error) + sse("waiting", "3-0")
    service.on(f"GET {SELF}/events", streams(retry, finished("failed")))
    service.on(f"GET {SELF}", says(generation(status="failed", reason="error", error=error)))
    ended = run("generate", "a red circle", "--url", service.url)
    assert (ended.code, ended.out) == (1, "")
    assert "attempt 1 failed: the device has 2 GB (out_of_memory); next in 5.0 s" in ended.err
    assert "error: the generation failed: the device has 2 GB (out_of_memory)" in ended.err
    assert f"kargah jobs retry {ID}" in ended.err


def test_ctrl_c_cancels_the_generation(service: FakeService) -> None:
    is_canceled = threading.Event()

    def watch(request: Request) -> None:
        request.stream(sse("snapshot", generation=generation()) + sse("progress", "3-0", progress=progress(5)))
        request.handler.wfile.flush()
        assert is_canceled.wait(30)

    def cancel(request: Request) -> None:
        is_canceled.set()
        says(generation(status="active", canceling=True), 202)(request)

    service.on(f"GET {SELF}/events", watch, streams(sse("canceled", "5-0"), sse("end")))
    service.on(f"POST {SELF}/cancel", cancel)
    service.on(f"GET {SELF}", says(generation(status="canceled", progress=progress(7))))
    command = kargah("generate", "a red circle", "--url", service.url)
    assert command.stderr is not None
    assert command.stderr.readline() == b"waiting\n"
    assert command.stderr.readline() == b"denoising\n"
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=30)
    assert (command.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "canceled at step 7/20"
    assert service.requests[-2].headers["last-event-id"] == "3-0"


def test_without_a_service_it_says_how_to_start_one(run: Run) -> None:
    ended = run("generate", "a red circle", "--url", "http://127.0.0.1:9")
    assert (ended.code, ended.out) == (3, "")
    assert "Start it with `make run` or `kargah up`" in ended.err


def test_a_refusal_names_the_field(service: FakeService, run: Run) -> None:
    service.on(
        "POST /v1/generations", problem(422, "no", errors=[{"field": "steps", "problem": "must be at most 150"}])
    )
    ended = run("generate", "a red circle", "--steps", "151", "--url", service.url)
    assert (ended.code, ended.err) == (2, "error: steps: must be at most 150\n")


@pytest.mark.parametrize("size", ["64x", "x64", "big", "1x2x3", "99999"])
def test_a_size_that_is_none_is_refused_before_anything_is_sent(service: FakeService, run: Run, size: str) -> None:
    ended = run("generate", "a red circle", "--size", size, "--url", service.url)
    assert ended.code == 2
    assert "--size" in ended.err
    assert service.requests == []


def test_a_setting_that_does_not_exist_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARGAH_PROT", "8000")
    ended = run("status")
    assert ended.code == 2
    assert "KARGAH_PROT" in ended.err


def test_jobs_list_shows_whatever_a_prompt_holds_in_one_line_each(service: FakeService, run: Run) -> None:
    prompt = {**generation()["input"], "prompt": "[bold]not markup[/bold] دایره"}  # type: ignore[dict-item]
    first = says({"data": [generation(input=prompt)], "next_cursor": "p1"})
    second = says({"data": [generation(status="failed")], "next_cursor": None})
    service.on("GET /v1/generations", first, second)
    ended = run("jobs", "list", "--url", service.url)
    heading, *rows = ended.out.splitlines()
    assert heading.split() == ["ID", "STATUS", "AGE", "PROMPT"]
    assert [row.split()[:2] for row in rows] == [[ID, "waiting"], [ID, "failed"]]
    assert "[bold]not markup[/bold] دایره" in rows[0]


def test_jobs_list_can_be_json(service: FakeService, run: Run) -> None:
    service.on("GET /v1/generations", says({"data": [generation()], "next_cursor": None}))
    (listed,) = json.loads(run("jobs", "list", "--json", "--url", service.url).out)
    assert listed["input"]["prompt"] == "a red circle"


def test_jobs_show_tells_what_is_known(service: FakeService, run: Run) -> None:
    ended = run("jobs", "show", ID, "--url", service.url)
    facts = dict(line.strip().split(maxsplit=1) for line in ended.out.splitlines())
    assert facts["status"] == "completed"
    assert facts["image"] == f"{SELF}/images/0"
    assert facts["picture"] == "64×64, 20 steps, guidance 4, seed 7"


def test_jobs_can_be_canceled_retried_and_removed(service: FakeService, run: Run) -> None:
    service.on(f"POST {SELF}/cancel", says(generation(status="canceled"), 202))
    service.on(f"POST {SELF}/retry", says(generation(), 202))
    service.on(f"DELETE {SELF}", lambda request: request.send(204, b""))
    assert run("jobs", "cancel", ID, "--url", service.url).out == "canceled\n"
    assert run("jobs", "retry", ID, "--url", service.url).out == "waiting\n"
    assert run("jobs", "remove", ID, "--url", service.url).out == "removed\n"
    service.on(f"DELETE {SELF}", problem(409, "it is active; cancel it first"))
    assert run("jobs", "remove", ID, "--url", service.url) == (2, "", "error: it is active; cancel it first\n")


def test_jobs_events_prints_a_line_for_each_event_and_can_follow(service: FakeService, run: Run) -> None:
    added = {"type": "added", "id": "1-0", "job": ID, "at": 1000, "run": 1, "attempt": 0, "seq": 1, "state": "waiting"}
    done = sse("completed", "2-0", type="completed", at=2000, started_at=1500) + sse("end")
    service.on(f"GET {SELF}/events", says({"data": [added], "last_id": "1-0"}), streams(done))
    ended = run("jobs", "events", ID, "--follow", "--url", service.url)
    assert [line.split()[1:] for line in ended.out.splitlines()] == [
        ["added", "state=waiting"],
        ["completed", "started_at=1500"],
    ]
    assert service.requests[1].headers["last-event-id"] == "1-0"


def test_status_counts_and_says_when_redis_is_away(service: FakeService, run: Run) -> None:
    service.on("GET /readyz", says({"counts": {"active": 1, "waiting": 0, "completed": 12}}))
    ended = run("status", "--url", service.url)
    assert ended == (0, f"ready at {service.url}\nactive       1\ncompleted    12\n", "")
    service.on("GET /readyz", problem(503, "away"))
    assert run("status", "--url", service.url).code == 1


def test_models_are_listed(service: FakeService, run: Run) -> None:
    card = {"id": "kargah/shapes", "width": 64, "height": 64, "steps": 20, "guidance_scale": 4}
    service.on("GET /v1/models", says({"data": [card]}))
    assert run("models", "--url", service.url).out.splitlines()[1].split() == ["kargah/shapes", "64×64", "20", "4"]


def test_the_webhook_secret_is_made_once(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KARGAH_DATA_DIR", str(tmp_path / "data"))
    first = run("webhook-secret").out
    assert first.startswith("whsec_")
    assert run("webhook-secret").out == first
    assert run("webhook-secret", "--new").out != first


def test_every_command_explains_itself(run: Run) -> None:
    for group in ([], ["jobs"], ["queues"], ["schedules"]):
        ended = run(*group, "--help")
        assert ended.code == 0
    names = [command.name for command in app.registered_commands]
    assert names == ["generate", "up", "api", "worker", "relay", "status", "models", "webhook-secret", "workers"]
    for name in names:
        assert run(str(name), "--help").code == 0


def test_the_service_s_url_follows_from_the_settings() -> None:
    assert cli_url(Settings()) == "http://127.0.0.1:8000"
    assert cli_url(Settings(host="0.0.0.0", port=9000)) == "http://127.0.0.1:9000"
    assert cli_url(Settings(host="::1")) == "http://[::1]:8000"
    assert cli_url(Settings(public_url="https://kargah.example")) == "https://kargah.example"


def cli_url(settings: Settings) -> str:
    from orchestrator.cli.console import service_url

    return service_url(settings)


def kargah(*arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", "from orchestrator.cli import main; main()", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
