"""`/metrics`: all queues, in the format that is asked for."""

import asyncio
import re

import httpx
import pytest
from starlette.applications import Starlette

from orchestrator.api import metrics
from orchestrator.keys import QUEUES_KEY
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from tests.orchestrator.api.test_generations import CIRCLE
from tests.record import change_meta


@pytest.fixture(autouse=True)
async def without_queues_of_other_tests(client: Client) -> None:
    """There may be thousands on this server, and they would all be asked."""
    await client.delete(QUEUES_KEY)


async def test_all_queues_are_told_of(api: httpx.AsyncClient, queue: Queue, queue_name: str) -> None:
    other = Queue(f"{queue_name}-other", queue.client)
    await other.add("paint")
    await api.post("/v1/generations", json=CIRCLE)
    response = await api.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert response.headers["cache-control"] == "no-store"
    for name in (queue_name, other.name):
        assert f'kargah_jobs_pending{{queue="{name}"}} 1.0' in response.text
        assert f'bullmq_job_count{{queue="{name}",state="waiting"}} 1.0' in response.text


async def test_the_queue_of_the_service_is_told_of_before_its_first_job(
    api: httpx.AsyncClient, queue_name: str
) -> None:
    text = (await api.get("/metrics")).text
    assert f'kargah_jobs_added_total{{queue="{queue_name}"}} 0.0' in text


async def test_a_queue_of_another_version_does_not_hide_the_others(
    api: httpx.AsyncClient, queue: Queue, queue_name: str
) -> None:
    other = Queue(f"{queue_name}-other", queue.client)
    await other.add("paint")
    await change_meta(queue.client, other.keys.meta, layout="99.0")
    await queue.client.sadd(QUEUES_KEY, "no { name")
    try:
        text = (await api.get("/metrics")).text
    finally:
        await queue.client.srem(QUEUES_KEY, "no { name", other.name)
    assert queue_name in text
    assert other.name not in text


async def test_openmetrics_is_given_to_who_asks(api: httpx.AsyncClient) -> None:
    response = await api.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


async def test_every_series_is_there_once(api: httpx.AsyncClient) -> None:
    text = (await api.get("/metrics")).text
    series = re.findall(r"^(\w+\{.*\}) ", text, re.MULTILINE)
    assert series
    assert len(series) == len(set(series))


async def test_a_slow_store_is_told_of_before_prometheus_gives_up(
    app: Starlette, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(metrics, "SCRAPE_S", 0.01)
    monkeypatch.setattr(app.state.context.queue, "get_queue_names", never)
    response = await api.get("/metrics")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
