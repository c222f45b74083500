"""For every script, the situations in which it does something different: one table for all tests over all scripts."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from orchestrator.errors import KargahError
from orchestrator.job import JobOptions, JobState, KeepJobs
from orchestrator.scripts import Claim, Finish, Report, Scripts
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene

ERROR = b'{"kind":"transient","message":"oh","details":{}}'
TIMEOUT = b'{"kind":"timeout","message":"slow","details":{}}'
CANCEL = b'{"by":"me","reason":"why"}'


class Call(NamedTuple):
    """Arguments of a method of `Scripts`."""

    args: tuple[Any, ...]
    fields: dict[str, Any]

    async def make(self, scripts: Scripts, name: str) -> Any:
        """Make the call; a named error is an answer too."""
        try:
            return await getattr(scripts, name)(*self.args, **self.fields)
        except KargahError as problem:
            return f"{type(problem).__name__}: {problem}"


Arrange = Callable[[Scene], Awaitable[Call]]


class Scenario(NamedTuple):
    """`arrange` brings a queue into position and returns the call to make there.

    counts: the answer says how much *this* call did, so that it differs when the call is made again.
    """

    script: str
    title: str
    arrange: Arrange
    counts: bool

    def __str__(self) -> str:
        return f"{self.script}: {self.title}"


SCENARIOS: list[Scenario] = []


def scenario(script: str, title: str, *, counts: bool = False) -> Callable[[Arrange], Arrange]:
    """Add a scenario to the table."""

    def keep(arrange: Arrange) -> Arrange:
        SCENARIOS.append(Scenario(script, title, arrange, counts))
        return arrange

    return keep


def call(*args: Any, **fields: Any) -> Call:
    """A call to make."""
    return Call(args, fields)


# ── add_job ──────────────────────────────────────────────────────────────────────────────────────────


def adding(title: str, **options: Any) -> None:
    """A scenario that adds the first job of a queue."""

    @scenario("add_job", title)
    async def _(scene: Scene) -> Call:
        return call("t", "new", msgspec.json.encode(JobOptions(**options).header("paint")), b'{"x":[]}')


adding("a plain job")
adding("a delayed job", delay_ms=50_000)
adding("a job with a priority, before the others", priority=7, lifo=True)
adding("a job with a deadline that tells the relay", expires_ms=90_000, notify=("added", "completed"))


@scenario("add_job", "an id that another call made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", b'{"n":"paint"}', b"{}")


@scenario("add_job", "its own id, removed in the meantime")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.remove_job("r", "a")
    return call("add-a", "a", b'{"n":"paint"}', b"{}")


@scenario("add_job", "an id whose record is gone by its TTL")
async def _(scene: Scene) -> Call:
    await scene.completed("a", remove_on_complete=_age(1000))
    await scene.end_retention("a", "completed")
    return call("t", "a", b'{"n":"paint"}', b"{}")


@scenario("fan_out", "a delivery")
async def _(scene: Scene) -> Call:
    return call("t", "new", msgspec.json.encode(JobOptions(attempts=3).header("delivery")), b'{"x":[]}')


@scenario("fan_out", "a delivery that another relay has made")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a", b'{"n":"delivery"}', b"{}")


# ── getters ──────────────────────────────────────────────────────────────────────────────────────────


@scenario("get_job", "with its history")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("a", history=True)


@scenario("get_job", "that has only waited")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=10_000)
    return call("a", history=True)


@scenario("get_job", "that is not there")
async def _(scene: Scene) -> Call:
    return call("a", history=True)


@scenario("get_jobs", "of all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call(list(JobState), 0, 100)


@scenario("get_recent", "over all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call(2, 50)


@scenario("get_counts", "of all states")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call()


@scenario("get_events", "from the start")
async def _(scene: Scene) -> Call:
    await every_state(scene)
    return call("0-0", 3)


@scenario("get_due_files", "some")
async def _(scene: Scene) -> Call:
    await scene.client.zadd(f"{scene.prefix}sweep", {"a/1-x": 1, "b/1-y": 2})
    return call(1)


async def every_state(scene: Scene) -> None:
    """One job in each state; of jobs that finished in the same millisecond the greater id counts as newer."""
    await scene.completed("1-done")
    await scene.failed("2-failed")
    await scene.canceled("3-canceled")
    await scene.active("active")
    await scene.add("waiting", priority=3)
    await scene.add("delayed", delay_ms=50_000)


# ── a worker's calls ─────────────────────────────────────────────────────────────────────────────────


def claiming(slots: int = 1) -> Call:
    """A call that claims."""
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, slots)


@scenario("move_to_active", "nothing to do")
async def _(scene: Scene) -> Call:
    return claiming()


@scenario("move_to_active", "several at once, one is left")
async def _(scene: Scene) -> Call:
    for name in "abc":
        await scene.add(name)
    return claiming(2)


@scenario("move_to_active", "a delayed job is due, another comes later")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=50_000)
    await scene.make_due()
    await scene.add("b", delay_ms=50_000_000)
    return claiming(2)


@scenario("move_to_active", "a job came too late")
async def _(scene: Scene) -> Call:
    await scene.add("a", expires_ms=1000)
    await scene.pass_deadlines()
    return claiming()


@scenario("move_to_active", "a worker was lost")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.end_leases()
    return claiming()


@scenario("move_to_active", "a paused queue")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.pause("p", paused=True)
    return claiming()


@scenario("move_to_active", "a limit on concurrency and on starts")
async def _(scene: Scene) -> Call:
    for name in "abcd":
        await scene.add(name)
    await scene.scripts.set_limits("l", concurrency=3, rate=(2, 500_000))
    return claiming(4)


def ending(title: str, outcome: str, content: bytes, pause_ms: int = -1, *, canceled: bool = False, **job: Any) -> None:
    """A scenario that ends an attempt while another job waits."""

    @scenario("move_to_finished", title)
    async def _(scene: Scene) -> Call:
        claim = await scene.active("a", **job)
        await scene.add("b")
        if canceled:
            await scene.scripts.cancel_job("c", "a", CANCEL)
        return finishing(Finish("a", claim.lease, outcome, content, pause_ms))


def finishing(*finishes: Finish, slots: int = 1) -> Call:
    """A call that ends attempts and claims."""
    return call("t", "lane:0", "worker", LEASE_MS, INTERVAL_MS, slots, finishes)


ending("completed", "completed", b'{"ok":[]}', notify=("completed",))
ending("completed with a result too large for an event", "completed", b'"%s"' % (b"x" * 3000))
ending("completed and kept for a time, with files", "completed", b"1", remove_on_complete=3600, has_files=True)
ending("completed and removed at once, with a large result", "completed", b'"%s"' % (b"x" * 3000),
       remove_on_complete=True, has_files=True)  # fmt: skip
ending("failed, again after a pause", "failed", ERROR, 5000, attempts=2)
ending("failed, again at once", "failed", ERROR, 0, attempts=2)
ending("failed for good", "failed", ERROR, 5000)
ending("failed by its time limit", "failed", TIMEOUT, -1, attempts=3)
ending("canceled by request", "canceled", b'{"step":3}', canceled=True)
ending("canceled by the processor", "canceled", b'{"step":3}')
ending("failed after it was canceled", "failed", ERROR, 0, attempts=3, canceled=True)
ending("completed although it was canceled", "completed", b"1", canceled=True)
ending("handed back", "returned", b"{}")


@scenario("move_to_finished", "two attempts and the queue is empty")
async def _(scene: Scene) -> Call:
    one, other = await scene.active("a"), await scene.active("b")
    return finishing(_done(one), _done(other))


@scenario("move_to_finished", "the lease was lost")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.end_leases()
    await scene.scripts.move_stalled_to_wait(LEASE_MS, INTERVAL_MS, 10)
    return finishing(_done(claim), slots=0)


@scenario("move_to_finished", "the lease was lost and the queue is empty")
async def _(scene: Scene) -> Call:
    return finishing(_done(await scene.completed("a")), slots=0)


@scenario("move_to_finished", "older ones beyond the count go")
async def _(scene: Scene) -> Call:
    for name in "abc":
        await scene.completed(name, has_files=True)
    return finishing(_done(await scene.active("d", remove_on_complete=1)))


@scenario("extend_locks", "held, canceled and lost ones")
async def _(scene: Scene) -> Call:
    held, canceled = await scene.active("a"), await scene.active("b")
    await scene.scripts.cancel_job("c", "b", CANCEL)
    return call(LEASE_MS, 5000, [("a", held.lease), ("b", canceled.lease), ("a", "wrong"), ("none", "x")])


@scenario("extend_locks", "one canceled long ago")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.cancel_job("c", "a", CANCEL)
    return call(LEASE_MS, -1, [("a", claim.lease)])


def reporting(title: str, report: Report, lease: str | None = None) -> None:
    """A scenario with a report of a running job."""

    @scenario("update_progress", title)
    async def _(scene: Scene) -> Call:
        claim = await scene.active("a", notify=("progress", "milestone"))
        return call("a", lease or claim.lease, report)


reporting("progress", Report(1, "", b'{"step":1}'))
reporting("a milestone", Report(1, "denoised", b"null"))
reporting("a preview", Report(1, "preview_ready", b'{"number":1}', b"RIFF\x00picture"))
reporting("of a lost lease", Report(1, "", b"1"), lease="wrong")


@scenario("update_progress", "a number that was seen already")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a")
    await scene.scripts.update_progress("a", claim.lease, Report(2, "", b"2"))
    await scene.scripts.cancel_job("c", "a", CANCEL)
    return call("a", claim.lease, Report(1, "", b"1"))


@scenario("add_log", "a line")
async def _(scene: Scene) -> Call:
    claim = await scene.active("a", keep_logs=1)
    await scene.scripts.add_log("a", claim.lease, 1, "first")
    return call("a", claim.lease, 2, "second")


@scenario("add_log", "of a lost lease")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("a", "wrong", 1, "first")


# ── administration ───────────────────────────────────────────────────────────────────────────────────


@scenario("cancel_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", expires_ms=10_000, notify=("canceled",))
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a delayed one that is not kept")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=10_000, remove_on_fail=True)
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a running one")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("t", "a", CANCEL)


@scenario("cancel_job", "one that was canceled already")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.scripts.cancel_job("c", "a", CANCEL)
    return call("t", "a", CANCEL)


@scenario("cancel_job", "a finished one")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("t", "a", CANCEL)


@scenario("cancel_job", "none")
async def _(scene: Scene) -> Call:
    return call("t", "a", CANCEL)


@scenario("reprocess_job", "a completed one with files and a TTL")
async def _(scene: Scene) -> Call:
    await scene.completed("a", has_files=True, remove_on_complete=_age(1000))
    return call("t", "a")


@scenario("reprocess_job", "a failed one")
async def _(scene: Scene) -> Call:
    await scene.failed("a", priority=4)
    return call("t", "a")


@scenario("reprocess_job", "a canceled one")
async def _(scene: Scene) -> Call:
    await scene.canceled("a")
    return call("t", "a")


@scenario("reprocess_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a")


@scenario("remove_job", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", expires_ms=1000)
    return call("t", "a")


@scenario("remove_job", "a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=1000)
    return call("t", "a")


@scenario("remove_job", "a completed one with files")
async def _(scene: Scene) -> Call:
    await scene.completed("a", has_files=True, remove_on_complete=_age(1000))
    return call("t", "a")


@scenario("remove_job", "a failed one")
async def _(scene: Scene) -> Call:
    await scene.failed("a")
    return call("t", "a")


@scenario("remove_job", "a running one")
async def _(scene: Scene) -> Call:
    await scene.active("a")
    return call("t", "a")


@scenario("remove_job", "none")
async def _(scene: Scene) -> Call:
    return call("t", "a")


@scenario("promote", "a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=100_000, priority=5)
    return call("t", "a")


@scenario("promote", "a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", "a")


@scenario("change_priority", "of a waiting one")
async def _(scene: Scene) -> Call:
    await scene.add("a", priority=5)
    await scene.add("b", priority=2)
    return call("t", "a", 2)


@scenario("change_priority", "of a delayed one")
async def _(scene: Scene) -> Call:
    await scene.add("a", delay_ms=100_000)
    return call("t", "a", 9)


@scenario("change_priority", "of a running one, to none")
async def _(scene: Scene) -> Call:
    await scene.active("a", priority=4)
    return call("t", "a", 0)


@scenario("change_priority", "of a finished one")
async def _(scene: Scene) -> Call:
    await scene.completed("a")
    return call("t", "a", 9)


@scenario("pause", "a queue with work")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    return call("t", paused=True)


@scenario("pause", "resume")
async def _(scene: Scene) -> Call:
    await scene.add("a")
    await scene.scripts.pause("p", paused=True)
    return call("t", paused=False)


@scenario("pause", "a queue that was never used")
async def _(scene: Scene) -> Call:
    return call("t", paused=True)


@scenario("set_limits", "all")
async def _(scene: Scene) -> Call:
    return call("t", concurrency=2, rate=(3, 1000), limited_ms=70_000)


@scenario("set_limits", "none any more")
async def _(scene: Scene) -> Call:
    await scene.scripts.set_limits("l", concurrency=2, rate=(3, 1000), limited_ms=70_000)
    return call("t", concurrency=0, rate=(0, 1), limited_ms=0)


# ── duties, relay ────────────────────────────────────────────────────────────────────────────────────


@scenario("promote_jobs", "some due, one too late", counts=True)
async def _(scene: Scene) -> Call:
    await scene.add("late", expires_ms=1000)
    await scene.pass_deadlines()
    await scene.add("a", delay_ms=1000)
    await scene.add("b", delay_ms=2000)
    await scene.make_due()
    return call(10)


@scenario("move_stalled_to_wait", "back, canceled, and once too often", counts=True)
async def _(scene: Scene) -> Call:
    await scene.active("a")
    await scene.active("b")
    await scene.scripts.cancel_job("c", "b", CANCEL)
    await scene.active("d", max_stalled=0)
    await scene.end_leases()
    return call(LEASE_MS, INTERVAL_MS, 10)


@scenario("remove_expired", "in every finished state", counts=True)
async def _(scene: Scene) -> Call:
    kept = {"remove_on_complete": _age(1000), "remove_on_fail": _age(1000)}
    await scene.completed("a", **kept)
    await scene.failed("b", **kept)
    await scene.canceled("c", **kept)
    for job_id, state in (("a", "completed"), ("b", "failed"), ("c", "canceled")):
        await scene.end_retention(job_id, state)
    return call(10)


@scenario("forget_files", "some")
async def _(scene: Scene) -> Call:
    await scene.client.zadd(f"{scene.prefix}sweep", {"a/1-x": 1, "b/1-y": 2})
    return call(["a/1-x", "c/1-z"])


@scenario("create_group", "the first time")
async def _(scene: Scene) -> Call:
    return call("relay")


@scenario("acknowledge", "some")
async def _(scene: Scene) -> Call:
    await scene.add("a", notify=("added",))
    await scene.add("b", notify=("added",))
    await scene.scripts.create_group("relay")
    read = await scene.client.xreadgroup("relay", "me", {scene.queue.keys.outbox: ">"})
    return call("relay", [entry_id.decode() for _, entries in read for entry_id, _ in entries][:1])


def _done(claim: Claim) -> Finish:
    return Finish(claim.job.id, claim.lease, "completed", b"1")


def _age(age_s: int) -> Any:
    return KeepJobs(age_s=age_s)
