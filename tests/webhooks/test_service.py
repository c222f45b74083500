import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from orchestrator import signing_secret
from orchestrator.active_job import ActiveJob
from orchestrator.api.generations import options_of
from orchestrator.generation import Generation, GenerationProgress, GenerationResult, Image, WebhookEvent
from orchestrator.job import JobState
from orchestrator.keys import new_job_id
from orchestrator.processors import Processor
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.settings import Settings
from orchestrator.worker import Worker
from tests.conftest import wait_until
from tests.servers import Server
from tests.webhooks.receiver import OK, Receiver, Request, answer
from webhooks import service
from webhooks.service import serve

EVENTS: tuple[WebhookEvent, ...] = ("started", "progress", "milestone", "completed", "failed", "canceled")


@pytest.fixture
def settings(url: str, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(service, "QUEUE", f"{queue_name}-webhooks")
    return Settings(
        redis_url=url,
        queue=queue_name,
        data_dir=tmp_path,
        public_url="https://pictures.example",
        webhook_retry_s=(0.02, 0.02),
        webhook_allow_http=True,
        webhook_allow_networks=("127.0.0.1/32",),
        attempts=1,
    )


async def submit(queue: Queue, settings: Settings, url: str) -> str:
    """As the api does it."""
    generation = Generation(
        prompt="a cat",
        model="m",
        width=64,
        height=64,
        steps=2,
        guidance_scale=2,
        seed=1,
        webhook_url=url,
        webhook_events=EVENTS,
    )
    job = await queue.add("generation", generation, options_of(generation, settings, None, new_job_id()))
    return job.id


def painter(receiver: Receiver) -> Processor:
    """Paints at once, but waits until its progress was seen: newer news would take its place."""

    async def paint(job: ActiveJob) -> GenerationResult:
        await job.update_progress(GenerationProgress(phase="denoising", step=1, steps=2, fraction=0.5))
        await wait_until(lambda: len(receiver.requests) == 2)
        await job.milestone("denoised")
        return GenerationResult(images=(Image(f"{job.id}/{job.attempt_key}/0.png", 64, 64, 1, 900),))

    return paint


async def test_a_receiver_sees_the_whole_life_of_a_generation_signed(
    settings: Settings, queue: Queue, client: Client
) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    async with Receiver() as receiver, Worker(queue.name, painter(receiver), client):
        job_id = await submit(queue, settings, receiver.url)
        await wait_until(lambda: len(receiver.requests) >= 4)
        stop.set()
        await serving
    webhook = Webhook(signing_secret.load(settings))
    bodies = [webhook.verify(request.body, request.headers) for request in receiver.requests]
    by_seq = sorted(bodies, key=lambda body: body["data"]["seq"])
    assert [body["type"].removeprefix("generation.") for body in by_seq] == [
        "started",
        "progress",
        "milestone",
        "completed",
    ]
    assert {body["data"]["id"] for body in bodies} == {job_id}
    assert by_seq[-1]["data"]["images"][0]["url"] == f"https://pictures.example/v1/generations/{job_id}/images/0"
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 4


async def test_a_receiver_that_never_answers_leaves_slots_to_the_others(settings: Settings, queue: Queue) -> None:
    release = asyncio.Event()

    async def never(_: Any, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(OK)

    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    async with Receiver(never) as hanging, Receiver() as healthy:
        for _ in range(2 * service.CONCURRENCY):
            await queue.cancel(await submit(queue, settings, hanging.url))
        await wait_until(lambda: len(hanging.requests) == service.PER_RECEIVER)
        await queue.cancel(await submit(queue, settings, healthy.url))
        await wait_until(lambda: len(healthy.requests) == 1)
        assert len(hanging.requests) == service.PER_RECEIVER
        release.set()
        stop.set()
        await serving


async def test_an_attempt_in_flight_at_the_stop_is_made_again_by_the_next_process(
    settings: Settings, queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STOP_GRACE_S", 0.05)
    release = asyncio.Event()

    async def hold(_: Any, writer: asyncio.StreamWriter) -> None:
        if not release.is_set():
            await release.wait()
        writer.write(OK)

    async with Receiver(hold) as receiver:
        stop = asyncio.Event()
        serving = asyncio.create_task(serve(settings, stop))
        job_id = await submit(queue, settings, receiver.url)
        await queue.cancel(job_id)
        await wait_until(lambda: len(receiver.requests) == 1)
        stop.set()
        await serving
        deliveries = Queue(service.QUEUE, client)
        [job] = await deliveries.get_jobs([JobState.WAITING])
        assert job.attempts_made == 0

        release.set()
        stop = asyncio.Event()
        serving = asyncio.create_task(serve(settings, stop))
        await wait_until(lambda: len(receiver.requests) == 2)
        stop.set()
        await serving
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


async def test_a_failing_receiver_is_asked_as_often_as_the_schedule_says(
    settings: Settings, queue: Queue, client: Client
) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    deliveries = Queue(service.QUEUE, client)

    async def has_failed() -> bool:
        return (await deliveries.get_counts())["failed"] == 1

    async with Receiver(answer(500)) as receiver:
        await queue.cancel(await submit(queue, settings, receiver.url))
        await wait_until(has_failed)
        stop.set()
        await serving
    assert receiver.accepted == 3


# ── the process ──────────────────────────────────────────────────────────────────────────────────────


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts relay processes, and ends those that a failed test left."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(_ended(_start(tmp_path, settings)))


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        yield process
        process.kill()


def _start(data_dir: Path, settings: dict[str, str]) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KARGAH_")}
    environment |= {"KARGAH_DATA_DIR": str(data_dir)} | {f"KARGAH_{name}": value for name, value in settings.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "webhooks"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_stops_cleanly(start: Start, url: str, queue_name: str, number: signal.Signals) -> None:
    process = start(REDIS_URL=url, QUEUE=queue_name, LOG_FORMAT="json")
    assert process.stderr is not None
    lines = [await asyncio.to_thread(process.stderr.readline)]
    while json.loads(lines[-1])["event"] != "relay.started":
        lines.append(await asyncio.to_thread(process.stderr.readline))
    process.send_signal(number)
    _, rest = await asyncio.to_thread(process.communicate, timeout=30)
    assert process.returncode == 0, rest
    assert json.loads(rest.splitlines()[-1])["event"] == "relay.stopped"
    assert "Traceback" not in rest


async def test_the_process_waits_for_a_redis_that_is_not_there_yet(start: Start, runtime_folder: Path) -> None:
    server = Server("valkey", runtime_folder / "late")
    process = start(REDIS_URL=server.url, LOG_FORMAT="json")
    assert process.stderr is not None
    while json.loads(await asyncio.to_thread(process.stderr.readline))["event"] != "relay.started":
        pass
    await asyncio.to_thread(server.start)
    queue = Queue("generations", server.url)
    settings = Settings()
    async with Receiver() as receiver, queue:
        await queue.cancel(await submit(queue, settings, receiver.url))
        deliveries = Queue("webhooks", queue.client)

        async def is_refused() -> bool:  # loopback is not allowed by default, and the relay is at work
            return (await deliveries.get_counts())["failed"] == 1

        await wait_until(is_refused)
        assert receiver.accepted == 0
    process.terminate()
    _, rest = await asyncio.to_thread(process.communicate, timeout=30)
    assert process.returncode == 0, rest
    await asyncio.to_thread(server.stop)


@pytest.mark.slow
async def test_relays_that_are_killed_lose_no_message(start: Start, url: str, queue: Queue, settings: Settings) -> None:
    """80 messages, 4 SIGKILLs: each message arrives, and again at most as often as attempts were in flight."""
    release = asyncio.Event()

    async def hold_every_fourth(_: Request, writer: asyncio.StreamWriter) -> None:
        if len(receiver.requests) % 4 == 0:
            await release.wait()
        writer.write(OK)

    def relay() -> subprocess.Popen[str]:
        allowed = {"WEBHOOK_ALLOW_HTTP": "true", "WEBHOOK_ALLOW_NETWORKS": "127.0.0.1/32"}
        return start(REDIS_URL=url, QUEUE=queue.name, LEASE_MS="500", **allowed)

    async with Receiver(hold_every_fourth) as receiver:
        jobs = set()
        for _ in range(4):
            process, seen = relay(), len(receiver.requests)
            for _ in range(20):
                job_id = await submit(queue, settings, receiver.url)
                await queue.cancel(job_id)
                jobs.add(job_id)
            await wait_until(lambda seen=seen: len(receiver.requests) >= seen + 5)  # type: ignore[misc]
            process.kill()
            await asyncio.to_thread(process.wait, 10)
        release.set()
        relay()
        await wait_until(lambda: {json.loads(request.body)["data"]["id"] for request in receiver.requests} == jobs, 60)
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 80
    assert len(receiver.requests) <= 80 + 4 * service.CONCURRENCY


@pytest.mark.parametrize(
    ("name", "value"), [("WEBHOOK_SECRET", "not a secret"), ("WEBHOOK_ALLOW_NETWORKS", "10.0.0.1/8"), ("NO_SUCH", "1")]
)
def test_settings_that_cannot_be_are_named(start: Start, name: str, value: str) -> None:
    process = start(**{name: value})
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert name.lower() in said.lower()
    assert "Traceback" not in said
    assert "not a secret" not in said
