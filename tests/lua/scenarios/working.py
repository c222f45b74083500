"""Situations of the scripts for working."""

from typing import Any

from orchestrator.scripts import Claim, Finish, Report
from tests.lua.scenarios.table import CANCEL, ERROR, TIMEOUT, Call, call, scenario
from tests.lua.scene import INTERVAL_MS, LEASE_MS, Scene


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


def _done(claim: Claim) -> Finish:
    return Finish(claim.job.id, claim.lease, "completed", b"1")
