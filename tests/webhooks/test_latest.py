from typing import Any, NamedTuple

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from orchestrator.keys import Keys
from orchestrator.scripts import Client
from webhooks.latest import PROGRESS, Latest


class Notice(NamedTuple):
    event: str
    type: str = PROGRESS
    job: str = "job1"
    subscription: str = "s"
    queue: str = "q"


@pytest.fixture
def latest(client: Client, queue_name: str) -> Latest:
    return Latest(client, Keys(queue_name), 60)


@pytest.mark.parametrize(
    "newer", ["generation.progress", "generation.completed", "generation.failed", "generation.canceled"]
)
async def test_progress_is_superseded_by_newer_progress_and_by_the_end(latest: Latest, newer: str) -> None:
    assert not await latest.supersedes(Notice("9-0"))
    await latest.note(Notice("10-0", newer))
    assert await latest.supersedes(Notice("9-99"))


async def test_the_newest_is_never_superseded(latest: Latest) -> None:
    await latest.note(Notice("10-1"))
    assert not await latest.supersedes(Notice("10-1"))
    assert not await latest.supersedes(Notice("10-2"))


async def test_milestones_and_ends_are_never_superseded_and_milestones_supersede_nothing(latest: Latest) -> None:
    await latest.note(Notice("10-0", "generation.milestone"))
    assert not await latest.supersedes(Notice("9-0"))
    await latest.note(Notice("10-0"))
    for type_ in ("started", "milestone", "completed", "failed", "canceled"):
        assert not await latest.supersedes(Notice("9-0", f"generation.{type_}"))


async def test_jobs_subscriptions_and_queues_do_not_mix(latest: Latest) -> None:
    await latest.note(Notice("10-0"))
    for other in (Notice("9-0", job="job2"), Notice("9-0", subscription="t"), Notice("9-0", queue="r")):
        assert not await latest.supersedes(other)


async def test_a_note_goes_with_time(latest: Latest, client: Client, queue_name: str) -> None:
    await latest.note(Notice("10-0"))
    keys = await client.keys(f"*{queue_name}*")
    assert len(keys) == 1
    assert 0 < await client.ttl(keys[0]) <= 60


async def test_without_redis_everything_is_delivered(
    monkeypatch: pytest.MonkeyPatch, latest: Latest, client: Client
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise RedisConnectionError

    await latest.note(Notice("10-0"))
    monkeypatch.setattr(client, "get", away)
    monkeypatch.setattr(client, "set", away)
    await latest.note(Notice("11-0"))
    assert not await latest.supersedes(Notice("9-0"))
