import asyncio
from typing import Any

from orchestrator.events import Event
from orchestrator.job import JobState
from tests.conftest import wait_until
from tests.webhooks.receiver import OK, Receiver, answer
from tests.webhooks.rig import SCHEDULE, Rig, counts, drain, progress, wait_for_lines
from webhooks.relay import delivery_id

# ── to the receiver ──────────────────────────────────────────────────────────────────────────────────


async def test_a_receiver_that_was_down_gets_its_message_when_it_is_up(rig: Rig) -> None:
    async with Receiver() as gone:
        pass
    job_id = await rig.canceled_job(gone.url)
    await drain(rig.relay())
    async with rig.deliverer():
        delivery = (await wait_for_lines(rig, 1))[0]
        assert delivery.error == "connect"
        async with Receiver(port=gone.port) as receiver:
            await wait_until(lambda: counts(rig, completed=1))
    assert len(receiver.requests) == 1
    assert job_id in receiver.requests[0].headers["webhook-id"]


async def test_every_attempt_carries_the_same_id_and_body_and_is_logged(rig: Rig) -> None:
    answers = [answer(500, body=b"broken"), answer(302, "Location: http://127.0.0.1:1/"), answer(429), OK]

    async def next_answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    async with Receiver(next_answer) as receiver, rig.deliverer():
        await rig.canceled_job(receiver.url)
        await drain(rig.relay())
        await wait_until(lambda: counts(rig, completed=1))
        lines = await wait_for_lines(rig, 4)
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert len({request.body for request in receiver.requests}) == 1
    assert [line.attempt for line in lines] == [1, 2, 3, 4]
    assert [line.status for line in lines] == [500, 302, 429, 200]
    assert lines[0].answer == "broken"


async def test_a_message_that_nobody_takes_ends_visibly_as_failed(rig: Rig) -> None:
    async with Receiver(answer(500)) as receiver, rig.deliverer():
        await rig.canceled_job(receiver.url)
        await drain(rig.relay())
        await wait_until(lambda: counts(rig, failed=1))
        lines = await wait_for_lines(rig, 4)
    assert receiver.accepted == SCHEDULE.attempts == 4
    assert lines[-1].outcome == "exhausted"
    [job] = await rig.deliveries.get_jobs([JobState.FAILED])
    assert job.error is not None
    assert job.error.message == "not delivered: status 500"


async def test_a_receiver_that_is_gone_is_asked_once(rig: Rig) -> None:
    async with Receiver(answer(410)) as receiver, rig.deliverer():
        await rig.canceled_job(receiver.url)
        await drain(rig.relay())
        await wait_until(lambda: counts(rig, failed=1))
    assert receiver.accepted == 1


async def test_of_waiting_progress_only_the_newest_is_sent_and_milestones_all(rig: Rig) -> None:
    async with Receiver() as receiver:
        for number in range(1, 6):
            await rig.put(progress(f"{number}-0"), receiver.url)
        reached = {"name": "decoded", "data": None}
        await rig.put(Event(id="2-1", type="milestone", at=1, job="job1", run=1, seq=4, fields=reached), receiver.url)
        await rig.put(progress("3-1", job="job2"), receiver.url)
        await drain(rig.relay())
        async with rig.deliverer():
            await wait_until(lambda: counts(rig, completed=7))
    assert sorted(request.headers["webhook-id"] for request in receiver.requests) == [
        "msg_job1_2-1",
        "msg_job1_5-0",
        "msg_job2_3-1",
    ]


async def test_two_subscriptions_of_one_event_are_two_deliveries() -> None:
    assert delivery_id("q", "5-0", "a") == delivery_id("q", "5-0", "a")
    ids = {
        delivery_id(*parts) for parts in (("q", "5-0", "a"), ("q", "5-0", "b"), ("q", "5-1", "a"), ("r", "5-0", "a"))
    }
    assert len(ids) == 4
