"""A queue, the queue of its deliveries, and what relays and delivers them."""

from ipaddress import ip_network
from typing import Any

import msgspec

from orchestrator import signing_secret
from orchestrator.addresses import AddressPolicy
from orchestrator.events import Event
from orchestrator.generation import Generation, WebhookEvent
from orchestrator.job import JobOptions, JobState
from orchestrator.keys import new_job_id
from orchestrator.queue import Queue
from orchestrator.scripts import Client
from orchestrator.settings import Settings
from orchestrator.worker import Worker
from tests.conftest import wait_until
from webhooks.delivery import Deliverer, Delivery, Receipt
from webhooks.latest import Latest
from webhooks.message import Composer
from webhooks.relay import GROUP, Relay
from webhooks.schedule import Schedule
from webhooks.transport import Transport

URL = "https://receiver.example/hook"
ALL: tuple[WebhookEvent, ...] = ("started", "progress", "milestone", "completed", "failed", "canceled")
SCHEDULE = Schedule((0.02, 0.02, 0.02), slow_down_s=0.02)


class Rig:
    """A queue, the queue of its deliveries, and what relays them."""

    def __init__(self, client: Client, url: str, name: str) -> None:
        self.client = client
        self.url = url
        self.source = Queue(name, client)
        self.deliveries = Queue(f"{name}-webhooks", client)
        self.latest = Latest(client, self.deliveries.keys, 60)
        self.relays: list[Relay] = []

    def relay(self, *, claim_idle_ms: int = 30_000) -> Relay:
        relay = Relay(
            self.source, self.deliveries, Composer(Settings(public_url="https://k.example")), SCHEDULE, self.latest,
            self.url, block_ms=20, claim_idle_ms=claim_idle_ms,
        )  # fmt: skip
        self.relays.append(relay)
        return relay

    def deliverer(self) -> Worker:
        policy = AddressPolicy(allow_http=True, allowed=(ip_network("127.0.0.1/32"),))
        keys = signing_secret.keys(signing_secret.new())
        subject = Deliverer(Transport(policy), keys, SCHEDULE, self.latest)
        return Worker(self.deliveries.name, subject, self.client, concurrency=4, interval_ms=20)

    async def canceled_job(self, url: str = URL, events: tuple[WebhookEvent, ...] = ("canceled",)) -> str:
        """A job that is over at once, and one entry in the outbox."""
        options = JobOptions(id=new_job_id(), notify=("canceled",))
        job = await self.source.add("generation", generation(url, events), options)
        await self.source.cancel(job.id, by="test")
        return job.id

    async def put(self, event: Event, url: str = URL) -> None:
        """An entry as the scripts write it."""
        data = msgspec.json.encode(generation(url, ALL))
        fields: dict[Any, Any] = {"id": event.id, "event": event.encode(), "job": event.job or "", "data": data}
        await self.client.xadd(self.source.keys.outbox, fields)

    async def queued(self) -> list[Delivery]:
        states = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED)
        return [job.data_as(Delivery) for job in await self.deliveries.get_jobs(states, 0, 100)]

    async def is_idle(self) -> bool:
        """Nothing is left in the outbox, and nothing is pending."""
        pending: Any = await self.client.xpending(self.source.keys.outbox, GROUP)
        return await self.client.xlen(self.source.keys.outbox) == 0 and pending["pending"] == 0


def generation(url: str | None, events: tuple[WebhookEvent, ...]) -> Generation:
    return Generation(
        prompt="a cat", model="m", width=64, height=64, steps=4, guidance_scale=2, seed=1, webhook_url=url,
        webhook_events=events, metadata={"order": 5},
    )  # fmt: skip


def progress(event_id: str, job: str = "job1") -> Event:
    fields = {"progress": {"phase": "denoising", "step": 1, "steps": 4, "fraction": 0.25}}
    return Event(id=event_id, type="progress", at=1, job=job, run=1, attempt=1, seq=3, fields=fields)


async def drain(relay: Relay) -> int:
    """Work until a step finds nothing."""
    done = 0
    while found := await relay.step():
        done += found
    return done


async def counts(rig: Rig, **wanted: int) -> bool:
    counts = await rig.deliveries.get_counts()
    return all(counts[state] == count for state, count in wanted.items())


async def wait_for_lines(rig: Rig, count: int) -> list[Receipt]:
    """The log lines of the only delivery, once there are `count`."""
    states = tuple(JobState)
    found: list[Receipt] = []

    async def are_there() -> bool:
        [job] = await rig.deliveries.get_jobs(states)
        found[:] = [msgspec.json.decode(line, type=Receipt) for line in await rig.deliveries.get_logs(job.id)]
        return len(found) >= count

    await wait_until(are_there)
    return found
