import asyncio
import json
import logging
import ssl
import time
from email.utils import formatdate
from ipaddress import ip_network
from typing import Any, TypeVar

import msgspec
import pytest
from standardwebhooks import Webhook

from orchestrator import signing_secret
from orchestrator.addresses import AddressPolicy
from orchestrator.errors import LeaseLost, RetryLater, StoreUnavailable, UnrecoverableError
from tests.webhooks.receiver import Receiver, answer
from webhooks.delivery import Deliverer, Delivery, Receipt
from webhooks.latest import Latest, Notice
from webhooks.schedule import Schedule
from webhooks.transport import Transport

T = TypeVar("T")

TLS = ssl.create_default_context()
SECRET = signing_secret.new()
SCHEDULE = Schedule((300.0, 1800.0))
BODY = '{"type":"generation.completed","data":{"word":"کارگاه"}}'.encode()


class FakeJob:
    """A delivery job in its `attempts_made + 1`th attempt."""

    id = "delivery1"

    def __init__(self, url: str, attempts_made: int = 0, type_: str = "generation.completed") -> None:
        self.attempts_made = attempts_made
        self.lines: list[str] = []
        self.log_error: Exception | None = None
        self.delivery = Delivery(
            queue="generations",
            job="job1",
            event="5-0",
            subscription="s",
            type=type_,
            url=url,
            message="msg_job1_5-0",
            body=msgspec.Raw(BODY),
        )

    def data_as(self, type_: type[T]) -> T:
        return msgspec.json.decode(msgspec.json.encode(self.delivery), type=type_)

    async def log(self, line: str) -> None:
        if self.log_error is not None:
            raise self.log_error
        self.lines.append(line)

    @property
    def receipt(self) -> Receipt:
        return msgspec.json.decode(self.lines[-1], type=Receipt)


class FakeLatest(Latest):
    def __init__(self, *, superseded: bool) -> None:
        self._superseded = superseded

    async def supersedes(self, notice: Notice) -> bool:
        return self._superseded


def deliverer(*, timeout_s: float = 15.0, allow: str = "127.0.0.1/32", superseded: bool = False) -> Deliverer:
    policy = AddressPolicy(allow_http=True, allowed=(ip_network(allow),))
    keys = signing_secret.keys(SECRET)
    return Deliverer(Transport(policy, timeout_s, TLS), keys, SCHEDULE, FakeLatest(superseded=superseded))


async def outcome(job: FakeJob, subject: Deliverer | None = None) -> tuple[str, int | None]:
    """What became of the attempt, and the pause before the next one."""
    try:
        await (subject or deliverer())(job)
    except RetryLater as problem:
        return "retry", problem.delay_ms
    except UnrecoverableError:
        return "final", None
    return "taken", None


async def test_a_message_is_signed_and_carries_the_body_byte_for_byte() -> None:
    async with Receiver() as receiver:
        job = FakeJob(receiver.url)
        result = await deliverer()(job)
    [request] = receiver.requests
    assert request.body == BODY
    assert Webhook(SECRET).verify(request.body, request.headers) == json.loads(BODY)
    assert request.headers["webhook-id"] == "msg_job1_5-0"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
    assert request.headers["content-type"] == "application/json"
    assert result == {"outcome": "delivered", "status": 200}
    assert job.receipt.answer == "ok"


async def test_every_status_has_its_meaning() -> None:
    taken, final, slow = set(range(200, 300)), {410}, {429, 502, 504}
    async with Receiver() as receiver:
        for status in range(200, 600):
            receiver.answer = answer(status, "Location: http://127.0.0.1:1/")
            became, pause_ms = await outcome(FakeJob(receiver.url))
            if status in taken:
                assert became == "taken", status
            elif status in final:
                assert became == "final", status
            else:
                assert became == "retry", status
                assert pause_ms is not None
                assert 240_000 <= pause_ms <= 360_000, status
        assert receiver.accepted == 400
        short = Deliverer(
            deliverer()._transport, signing_secret.keys(SECRET), Schedule((5.0,)), FakeLatest(superseded=False)
        )
        for status in range(400, 600):
            receiver.answer = answer(status)
            _, pause_ms = await outcome(FakeJob(receiver.url), short)
            if status not in final:
                assert pause_ms is not None
                assert (pause_ms == 60_000) == (status in slow), status


@pytest.mark.parametrize(
    ("value", "pause_ms"),
    [
        ("0", 300_000),
        ("400", 400_000),
        ("99999999999", 600_000),
        pytest.param(formatdate(time.time() + 10**6, usegmt=True), 600_000, id="a date far away"),
    ],
)
async def test_retry_after_is_obeyed_within_bounds(value: str, pause_ms: int) -> None:
    async with Receiver(answer(503, f"Retry-After: {value}")) as receiver:
        assert await outcome(FakeJob(receiver.url)) == ("retry", pause_ms)


@pytest.mark.parametrize("value", ["soon", "-1", "", "1e9"])
async def test_a_retry_after_that_says_nothing_is_passed_over(value: str) -> None:
    async with Receiver(answer(503, f"Retry-After: {value}")) as receiver:
        became, pause_ms = await outcome(FakeJob(receiver.url))
    assert became == "retry"
    assert pause_ms is not None
    assert 240_000 <= pause_ms <= 360_000


@pytest.mark.parametrize("control", ["abort-message", "disable"])
async def test_a_receiver_may_end_a_message(control: str) -> None:
    async with Receiver(answer(500, f"Webhook-Delivery: {control}")) as receiver:
        job = FakeJob(receiver.url)
        assert await outcome(job) == ("final", None)
    assert job.receipt.outcome == {"abort-message": "aborted", "disable": "gone"}[control]


async def test_other_words_of_the_receiver_change_nothing() -> None:
    async with Receiver(answer(500, "Webhook-Delivery: please")) as receiver:
        assert (await outcome(FakeJob(receiver.url)))[0] == "retry"


async def test_after_a_timeout_it_is_at_least_a_minute() -> None:
    async def silent(*_: Any) -> None:
        await never.wait()

    never = asyncio.Event()
    async with Receiver(silent) as receiver:
        subject = deliverer(timeout_s=0.05)
        subject._schedule = Schedule((5.0,))
        job = FakeJob(receiver.url)
        assert await outcome(job, subject) == ("retry", 60_000)
    assert job.receipt.error == "timeout"


async def test_a_receiver_that_is_down_is_tried_again() -> None:
    async with Receiver() as receiver:
        pass
    job = FakeJob(receiver.url)
    assert (await outcome(job))[0] == "retry"
    assert (job.receipt.error, job.receipt.status) == ("connect", None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://10.0.0.1/", "ftp://a.example/", "nonsense"])
async def test_a_refused_address_is_final_and_is_not_told(url: str) -> None:
    job = FakeJob(url)
    subject = deliverer(allow="127.0.0.9/32")
    with pytest.raises(UnrecoverableError) as problem:
        await subject(job)
    assert "127.0.0" not in str(problem.value)
    assert job.receipt.outcome == "refused"


async def test_the_last_attempt_ends_the_message() -> None:
    async with Receiver(answer(500)) as receiver:
        job = FakeJob(receiver.url, attempts_made=2)
        assert await outcome(job) == ("retry", 0)  # the queue has no attempt left for it
    assert job.receipt == Receipt(
        attempt=3, outcome="exhausted", status=500, error="status", duration_ms=job.receipt.duration_ms
    )


async def test_superseded_progress_is_not_sent() -> None:
    async with Receiver() as receiver:
        job = FakeJob(receiver.url, type_="generation.progress")
        result = await deliverer(superseded=True)(job)
        assert receiver.accepted == 0
    assert result["outcome"] == job.receipt.outcome == "superseded"


async def test_the_job_keeps_one_line_per_attempt_with_the_first_kibibyte_of_the_answer() -> None:
    async with Receiver(answer(500, body="é\n".encode() * 1000)) as receiver:
        job = FakeJob(receiver.url)
        await outcome(job)
    [line] = job.lines
    assert "\n" not in line
    assert job.receipt.answer is not None
    assert len(job.receipt.answer.encode()) <= 1024 + 2
    assert (job.receipt.attempt, job.receipt.status, job.receipt.error) == (1, 500, "status")
    assert job.receipt.next_ms is not None
    assert 240_000 <= job.receipt.next_ms <= 360_000


async def test_the_operators_line_holds_neither_path_nor_secret_nor_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kargah")
    async with Receiver(answer(200, body=b"private answer")) as receiver:
        job = FakeJob(f"http://127.0.0.1:{receiver.port}/services/T0KEN?key=S3CRET")
        await deliverer()(job)
    [record] = [record for record in caplog.records if record.getMessage() == "delivery.attempted"]
    fields: dict[str, Any] = record.__dict__["kargah_fields"]
    assert fields["origin"] == f"http://127.0.0.1:{receiver.port}"
    assert (fields["attempt"], fields["outcome"], fields["status"]) == ("1/3", "delivered", 200)
    for word in ("T0KEN", "S3CRET", "private", "word", SECRET[6:20]):
        assert word not in str(fields)


async def test_a_lost_log_line_does_not_undo_a_delivery() -> None:
    async with Receiver() as receiver:
        job = FakeJob(receiver.url)
        job.log_error = StoreUnavailable("away")
        assert await outcome(job) == ("taken", None)
        job.log_error = LeaseLost("another has it")
        with pytest.raises(LeaseLost):
            await deliverer()(job)
