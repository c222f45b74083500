"""The process: how it stops, what clients that leave take with them, and that it says what it needs."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from orchestrator.api.server import Server
from orchestrator.queue import Queue
from orchestrator.settings import Settings
from tests.conftest import wait_until
from tests.orchestrator.api.conftest import serving
from tests.orchestrator.api.sse import EventSource, watching
from tests.orchestrator.api.test_generations import create

REQUEST = (
    b"POST /v1/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n"
)
BODY = b'{"prompt": "a red circle"}'


async def test_open_streams_end_with_a_hint_when_the_server_stops(settings: Settings) -> None:
    sources: list[EventSource] = []
    loop = asyncio.get_running_loop()

    async def watch(web: httpx.AsyncClient, path: str) -> None:
        async with watching(web, path) as source:
            await source.until("ready")
            sources.append(source)
            async for _ in source:
                pass

    async with serving(settings) as server:
        limits = httpx.Limits(max_connections=200)
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30, trust_env=False) as web:
            resource = await create(web)
            paths = ["/v1/events", resource["urls"]["events"]] * 50
            watchers = [asyncio.create_task(watch(web, path)) for path in paths]
            await wait_until(lambda: len(sources) == 100)
            begin = loop.time()
            server.should_exit = True
            await asyncio.gather(*watchers)
    assert loop.time() - begin < 5
    assert all(source.retry_ms is not None and 500 <= source.retry_ms <= 3000 for source in sources)
    assert len({source.retry_ms for source in sources}) > 50  # they do not all come back at once


async def test_a_stream_opened_while_stopping_ends_at_once(live: Server, web: httpx.AsyncClient) -> None:
    live.streams.stop()
    async with watching(web, "/v1/events") as source:
        assert [message async for message in source] == []
        assert source.response.status_code == 200


async def test_a_client_that_leaves_right_after_its_request_leaves_a_whole_job(live: Server, queue: Queue) -> None:
    for number in range(60):
        _, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(REQUEST + BODY)
        await writer.drain()
        if number % 2:
            writer.transport.abort()
        else:
            writer.close()
    await wait_until(lambda: not live.server_state.connections and not live.server_state.tasks)
    jobs, _ = await queue.get_recent(0, 100)
    assert 0 < len(jobs) <= 60
    for job in jobs:
        snapshot = await queue.get_snapshot(job.id)
        assert snapshot is not None
        assert [event.type for event in snapshot.history] == ["added"]


async def test_a_client_that_leaves_within_its_request_leaves_nothing(live: Server, queue: Queue) -> None:
    for cut in range(0, len(REQUEST) + len(BODY), 7):
        _, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write((REQUEST + BODY)[:cut])
        await writer.drain()
        writer.transport.abort()
    await wait_until(lambda: not live.server_state.connections and not live.server_state.tasks)
    assert sum((await queue.get_counts()).values()) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_until_a_signal_and_ends_well(
    settings: Settings, tmp_path: Path, number: signal.Signals
) -> None:
    process = await start(settings, tmp_path)
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    assert "api.listening" in line
    url = line.split("url=")[1].strip()
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as web:
        resource = await create(web)
        async with watching(web, resource["urls"]["events"]) as source:
            await source.until("ready")
            process.send_signal(number)
            assert [message async for message in source] == []
            assert source.retry_ms is not None
    async with asyncio.timeout(20):
        assert await process.wait() == 0
        rest = (await process.stderr.read()).decode()
    assert "Traceback" not in rest
    assert "circle" not in rest  # prompts are never logged


async def test_settings_that_cannot_be_end_the_process_with_a_sentence(settings: Settings, tmp_path: Path) -> None:
    process = await start(settings, tmp_path, KARGAH_MODELS="no such model")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "KARGAH_MODELS" in errors.decode()
    assert "Traceback" not in errors.decode()


async def start(settings: Settings, folder: Path, **environment: str) -> asyncio.subprocess.Process:
    variables = {
        "PATH": os.environ["PATH"],
        "KARGAH_REDIS_URL": settings.redis_url,
        "KARGAH_QUEUE": settings.queue,
        "KARGAH_DATA_DIR": str(folder),
        "KARGAH_PORT": "0",
        **environment,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchestrator.api", env=variables, stderr=asyncio.subprocess.PIPE
    )
