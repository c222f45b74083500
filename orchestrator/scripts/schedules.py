"""Calls about schedules."""

from collections.abc import Sequence

import msgspec

from orchestrator.job import Header
from orchestrator.schedule import HungrySchedule, JobScheduler, RepeatOptions, Slots
from orchestrator.scripts.call import ScriptCaller


class ScheduleScripts(ScriptCaller):
    """What makes, reads, fills and removes schedules."""

    async def upsert_job_scheduler(
        self, token: str, scheduler_id: str, template: tuple[bytes, bytes], repeat: RepeatOptions, slots: Slots | None
    ) -> JobScheduler | None:
        """Make or change a schedule; None when a repeated call finds it removed. `slots` with a cron only."""
        is_cron = slots is not None
        known_to, instants, is_last = slots or ("", [], False)
        reply = await self._run(
            "upsert_job_scheduler",
            token,
            scheduler_id,
            *template,
            _or_empty(repeat.every_ms),
            repeat.cron or "",
            repeat.tz if is_cron else "",
            _or_empty(repeat.start_at),
            _or_empty(repeat.end_at),
            _or_empty(repeat.limit),
            int(repeat.immediately),
            known_to,
            int(is_last),
            *instants,
        )
        return _read(reply)

    async def remove_job_scheduler(self, token: str, scheduler_id: str) -> bool:
        """Remove a schedule."""
        return bool(await self._run("remove_job_scheduler", token, scheduler_id))

    async def get_job_scheduler(self, scheduler_id: str) -> tuple[int, JobScheduler | None]:
        """The server's clock, and the schedule."""
        now, reply = await self._run("get_job_scheduler", scheduler_id)
        return int(now), _read(reply)

    async def get_job_schedulers(self, start: int, count: int) -> list[JobScheduler]:
        """A page of the schedules."""
        found = [_read(reply) for reply in await self._run("get_job_schedulers", start, count)]
        return [scheduler for scheduler in found if scheduler is not None]

    async def get_hungry_schedules(self, count: int) -> list[HungrySchedule]:
        """Schedules that need slots."""
        hungry = []
        for scheduler_id, version, known_to, cron, tz, end_at in await self._run("get_hungry_schedules", count):
            repeat = RepeatOptions(cron=cron.decode(), tz=tz.decode(), end_at=int(end_at) if end_at else None)
            hungry.append(HungrySchedule(scheduler_id.decode(), version.decode(), int(known_to), repeat))
        return hungry

    async def fill_schedule(self, scheduler_id: str, version: str, slots: Slots) -> bool:
        """Give a schedule its next slots; whether it took them."""
        known_to, instants, is_last = slots
        return bool(await self._run("fill_schedule", scheduler_id, version, known_to, int(is_last), *instants))


def _or_empty(number: int | None) -> int | str:
    return "" if number is None else number


def _read(reply: Sequence[bytes]) -> JobScheduler | None:
    if not reply:
        return None
    scheduler_id, *flat = reply
    record = {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def number(name: str) -> int | None:
        return int(record[name]) if name in record else None

    return JobScheduler(
        id=scheduler_id.decode(),
        repeat=RepeatOptions(
            every_ms=number("every_ms"),
            cron=record["cron"].decode() if "cron" in record else None,
            tz=record.get("tz", b"UTC").decode(),
            start_at=number("start_at"),
            end_at=number("end_at"),
            limit=number("limit"),
        ),
        header=msgspec.json.decode(record["header"], type=Header),
        data=msgspec.Raw(record["data"]),
        next_at=number("at"),
        made=number("made") or 0,
        skipped=number("skipped") or 0,
        last_job_id=record["last"].decode() if "last" in record else None,
        is_finished="finished" in record,
    )
