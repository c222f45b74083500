"""Delivering one message: sign it, post it, judge the answer, and say when to try again."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from redis.exceptions import RedisError

from orchestrator.addresses import check_url
from orchestrator.errors import InvalidOption, KargahError, LeaseLost, RetryLater, UnrecoverableError
from orchestrator.log import get_logger
from webhooks.latest import Latest
from webhooks.schedule import SLOW_DOWN, Schedule, parse_retry_after
from webhooks.signature import signed_headers
from webhooks.transport import Answer, CallFailed, Transport

T = TypeVar("T")

JOB_NAME = "delivery"
USER_AGENT = "Kargah-Webhooks/1"

log = get_logger("webhooks")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a delivery job: one message for one subscription, its body already written.

    `subscription` names whose it is: for a job's own `webhook_url` a hash of the URL.
    """

    queue: str
    job: str
    event: str
    subscription: str
    type: str
    url: str
    message: str
    body: msgspec.Raw


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt came to; kept in the job's own log, and as its result when it ended well.

    outcome: delivered, superseded, retry, exhausted, refused (address), gone (410, disable) or aborted (by the
    receiver). `next_ms` is the pause before the next attempt, `answer` the first 1 KiB of the body.
    """

    attempt: int
    outcome: str
    duration_ms: int = 0
    status: int | None = None
    error: str | None = None
    message: str | None = None
    next_ms: int | None = None
    answer: str | None = None


class DeliveryJob(Protocol):
    """What the deliverer needs of an `ActiveJob`."""

    @property
    def id(self) -> str: ...
    @property
    def attempts_made(self) -> int: ...
    def data_as(self, type_: type[T]) -> T: ...
    async def log(self, line: str) -> Any: ...


class Deliverer:
    """The processor of the `webhooks` queue."""

    def __init__(
        self,
        transport: Transport,
        keys: Sequence[bytes],
        schedule: Schedule,
        latest: Latest,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport = transport
        self._keys = tuple(keys)
        self._schedule = schedule
        self._latest = latest
        self._clock = clock

    async def __call__(self, job: DeliveryJob) -> dict[str, Any]:
        """One attempt. Returns the receipt; raises `RetryLater` or `UnrecoverableError` when the message was not taken.

        May run twice for one attempt (the worker died before it could say so): receivers know repeats by `webhook-id`.
        """
        delivery = job.data_as(Delivery)
        began = time.monotonic()
        attempt = job.attempts_made + 1  # a relay that died or stopped meanwhile used up none
        if await self._latest.supersedes(delivery):
            receipt = Receipt(attempt=attempt, outcome="superseded")
        else:
            receipt = await self._attempt(delivery, attempt)
        receipt = msgspec.structs.replace(receipt, duration_ms=round((time.monotonic() - began) * 1000))
        await self._record(job, delivery, receipt)
        return _settle(receipt)

    async def _attempt(self, delivery: Delivery, attempt: int) -> Receipt:
        body = bytes(delivery.body)
        headers = signed_headers(delivery.message, int(self._clock()), body, self._keys)
        headers |= {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        try:
            endpoint = check_url(delivery.url, self._transport.policy)
            answer = await self._transport.post(endpoint, headers, body)
        except InvalidOption as problem:
            return Receipt(attempt=attempt, outcome="refused", error="refused", message=problem.problem)
        except CallFailed as problem:
            slow_down = problem.kind == "timeout"
            return self._again(attempt, slow_down, error=problem.kind, message=str(problem))
        return self._judge(answer, attempt)

    def _judge(self, answer: Answer, attempt: int) -> Receipt:
        text = answer.body.decode("utf-8", errors="replace") or None
        if 200 <= answer.status <= 299:
            return Receipt(attempt=attempt, outcome="delivered", status=answer.status, answer=text)
        if answer.status == 410 or answer.control == "disable":
            return Receipt(attempt=attempt, outcome="gone", status=answer.status, answer=text, error="gone")
        if answer.control == "abort-message":
            return Receipt(attempt=attempt, outcome="aborted", status=answer.status, answer=text, error="aborted")
        return self._again(
            attempt,
            answer.status in SLOW_DOWN,
            parse_retry_after(answer.retry_after, self._clock()),
            status=answer.status,
            answer=text,
            error="status",
        )

    def _again(self, attempt: int, slow_down: bool, retry_after_s: float | None = None, **fields: Any) -> Receipt:
        if attempt >= self._schedule.attempts:
            return Receipt(attempt=attempt, outcome="exhausted", **fields)
        pause_ms = self._schedule.pause_ms(attempt, slow_down=slow_down, retry_after_s=retry_after_s)
        return Receipt(attempt=attempt, outcome="retry", next_ms=pause_ms, **fields)

    async def _record(self, job: DeliveryJob, delivery: Delivery, receipt: Receipt) -> None:
        """One line for the operator, and one kept with the job. A lost line changes nothing about the message."""
        log.info(
            "delivery.attempted",
            job=delivery.job,
            delivery=job.id,
            message=delivery.message,
            type=delivery.type,
            origin=_origin(delivery.url, self._transport),
            attempt=f"{receipt.attempt}/{self._schedule.attempts}",
            duration_ms=receipt.duration_ms,
            outcome=receipt.outcome,
            status=receipt.status,
            error=receipt.error,
        )
        try:
            await job.log(msgspec.json.encode(receipt).decode())
        except LeaseLost:
            raise
        except (KargahError, RedisError) as problem:
            log.warning("delivery.log_lost", delivery=job.id, error=str(problem))


def _settle(receipt: Receipt) -> dict[str, Any]:
    """From what the attempt came to, to what the queue does about it."""
    words = f"status {receipt.status}" if receipt.status else receipt.message
    details = {"outcome": receipt.outcome, "status": receipt.status}
    match receipt.outcome:
        case "delivered" | "superseded":
            return details
        case "retry" | "exhausted":
            raise RetryLater(f"not delivered: {words}", receipt.next_ms or 0, **details)
        case _:
            raise UnrecoverableError(f"not delivered, and not tried again: {words}", **details)


def _origin(url: str, transport: Transport) -> str:
    try:
        return check_url(url, transport.policy).origin
    except InvalidOption:
        return "refused"
