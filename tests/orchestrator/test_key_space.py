"""No call touches a key outside its queue's prefix, whatever ids, names and data it is given.

The server itself is the witness: the user of these tests may use no other key and no other channel, in scripts neither.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from orchestrator.deduplication import Deduplication
from orchestrator.errors import InvalidOption, WrongState
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.queue import Queue
from orchestrator.scripts import Client, Report, connect
from tests.invariants import check_queue
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene, drain
from tests.servers import Server

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

HOSTILE = [
    "a:b", "state:a", "job:a", "meta", "0", "..", "a..b", "@a", "x" * 128, "x" * 129, "x" * 1_048_576, "", " ", "a b",
    "a\n", "a\r\nDEL other", "\x00", "{other}", "}:{other}:a", "kargah:{other}:job:a", "other", "*", "a*", "[a-z]", "?",
    '"', "'", "\\", '","b":"', "ä", "مثال", "\u2028", "\ud800", "$(id)", "%s", "%00", "../../etc", "<script>",
]  # fmt: skip


@pytest.fixture
async def fenced(server: Server, client: Any, queue: Queue) -> AsyncIterator[Any]:
    """A client that may touch the keys and channels of one queue, and the set of all queues' names."""
    user = queue.name
    allowed = (f"~{queue.keys.prefix}*", f"&{queue.keys.prefix}*", "~kargah:queues", "+@all", "-@admin", "-@dangerous")
    await client.execute_command("ACL", "SETUSER", user, "reset", "on", ">secret", *allowed)
    fenced = connect(f"unix://{user}:secret@{server.socket}")
    yield fenced
    await fenced.aclose()
    await client.execute_command("ACL", "DELUSER", user)


async def test_no_id_name_or_datum_leads_out_of_the_prefix(fenced: Any, client: Client, queue: Queue) -> None:
    await client.set("other", "1")
    with pytest.raises(NoPermissionError):
        await fenced.get("other")
    with pytest.raises(NoPermissionError):
        await fenced.eval("return redis.call('SET', KEYS[1] .. 'x', '1')", 1, "kargah:{other}:")
    scene = Scene(Queue(queue.name, fenced))
    taken = 0
    for text in HOSTILE:
        taken += await use(scene, text)
    assert taken >= 8
    await check_queue(Queue(queue.name, client))
    await scene.queue.drain(delayed=True)
    await scene.queue.obliterate(force=True)
    assert [key async for key in client.scan_iter(f"{queue.keys.prefix}*")] == []
    assert await client.get("other") == b"1"


async def use(scene: Scene, text: str) -> bool:
    """Give a text to every call that takes one; True when it is taken as an id."""
    queue = scene.queue
    options = JobOptions(notify=("added", "completed"), remove_on_complete=KeepJobs(age_s=1000, count=5))
    if "\ud800" not in text and 1 <= len(text) <= 128:
        await queue.add(text, {text: text}, options)
        await queue.add_bulk([(text, text, options)])
        (claim,) = (await scene.claim()).claims
        await scene.scripts.update_progress(claim.job.id, claim.lease, Report(1, text, b"1", text.encode()))
        await scene.scripts.add_log(claim.job.id, claim.lease, 2, text)
        await scene.finish(claim)
        await queue.cancel((await queue.get_jobs([JobState.WAITING]))[0].id, text, text)
    try:
        await queue.add("paint", text, JobOptions(id=text, deduplication=Deduplication(text), delay_ms=50_000))
    except InvalidOption:
        await refuses(queue, text)
        return False
    await queue.change_delay(text, 60_000)
    await queue.change_priority(text, 3)
    await queue.promote(text)
    await queue.get_snapshot(text)
    await queue.get_logs(text)
    await queue.get_preview(text)
    assert await queue.get_deduplication_job_id(text) == text
    await scene.scripts.move_to_active(scene.token(), "w:0", text, LEASE_MS, INTERVAL_MS, 1)
    with pytest.raises(WrongState):
        await queue.remove(text)
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    assert await drain(scene) == [text]
    await queue.retry(text)
    await queue.remove_deduplication_key(text, text)
    await queue.cancel(text)
    assert await queue.remove(text)
    return True


async def refuses(queue: Queue, text: str) -> None:
    """A text that is no id is refused by every call that takes an id, each naming the field."""
    for call in (
        queue.get_job(text),
        queue.get_snapshot(text),
        queue.get_history(text),
        queue.get_logs(text),
        queue.get_preview(text),
        queue.cancel(text),
        queue.retry(text),
        queue.remove(text),
        queue.promote(text),
        queue.change_priority(text, 1),
        queue.change_delay(text, 1),
        queue.get_deduplication_job_id(text),
        queue.remove_deduplication_key(text),
        queue.remove_deduplication_key("k", text),
    ):
        with pytest.raises(InvalidOption) as refused:
            await call
        assert refused.value.field in ("id", "deduplication.id")
