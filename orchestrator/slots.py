"""When a cron expression comes: slots of a local calendar, turned into instants.

cronsim reads the expression and walks the calendar; what happens when clocks change is decided here:

    expression              clocks go forward, 02:00 → 03:00     clocks go back, 03:00 → 02:00
    some hours (30 2 * * *)  the slot comes right after, at 03:00  once: the first time that it is 02:30
    every hour (30 * * * *)  there is no 02:30                     twice: an hour apart, as the clock shows it

So a daily job runs every day, once, and an hourly one every hour.
"""

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from orchestrator.errors import InvalidOption

MAX_CRON_CHARS = 256
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY_HOUR = set(range(24))


class Cron:
    """A cron expression in a time zone.

    Five fields (minute, hour, day of month, month, day of week) or six, with seconds first; names of months and
    days, lists, ranges, steps, `L` (last day), `LW`, `5L` (last Friday), `MON#2`, and `@daily` and its like. With both
    a day of month and a day of week one of them suffices, as in cron.

    Raises `InvalidOption` for what is neither an expression nor a time zone.
    """

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        self._expression = _checked(expression)
        self._zone = _zone(tz)
        self._is_hourly = self._walk(datetime(2000, 1, 1)).hours == EVERY_HOUR

    def after(self, instant: int) -> Iterator[int]:
        """The slots after an instant, in order, as instants (ms); ends where none comes for 50 years."""
        last = instant
        second_passes: list[int] = []
        for local in self._walk(self._start(instant)):
            first, second = self._first_pass(local), self._second_pass(local)
            if second is not None:
                heapq.heappush(second_passes, second)
            while second_passes and (first is None or second_passes[0] < first):
                if (slot := heapq.heappop(second_passes)) > last:
                    yield (last := slot)
            if first is not None and first > last:
                yield (last := first)
        yield from (slot for slot in sorted(second_passes) if slot > last)

    def _walk(self, start: datetime) -> CronSim:
        try:
            return CronSim(self._expression, start)
        except CronSimError as problem:
            raise InvalidOption("cron", f"is no cron expression: {str(problem).lower()}") from None

    def _start(self, instant: int) -> datetime:
        """Where to begin, in local time: an hour that is repeated, from its beginning on."""
        local = datetime.fromtimestamp(instant // 1000, self._zone).replace(tzinfo=None)
        return local - (_repeated(local, self._zone) or timedelta())

    def _first_pass(self, local: datetime) -> int | None:
        """When the clock first shows `local`; where it never does: right after the change, or never."""
        aware = local.replace(tzinfo=self._zone)
        if not _is_skipped(local, self._zone):
            return _ms(aware)
        return None if self._is_hourly else _change_before(aware)

    def _second_pass(self, local: datetime) -> int | None:
        if self._is_hourly and _repeated(local, self._zone):
            return _ms(local.replace(tzinfo=self._zone, fold=1))
        return None


def _checked(expression: object) -> str:
    if not isinstance(expression, str) or not 1 <= len(expression) <= MAX_CRON_CHARS:
        raise InvalidOption("cron", f"must be text of 1 to {MAX_CRON_CHARS} characters")
    if not expression.startswith("@"):
        return expression
    if expression.lower() not in ALIASES:
        raise InvalidOption("cron", f"is none of {', '.join(ALIASES)}")
    return ALIASES[expression.lower()]


def _zone(tz: object) -> ZoneInfo:
    if not isinstance(tz, str) or not tz:
        raise InvalidOption("tz", "must be the name of a time zone, like Europe/Berlin")
    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):
        raise InvalidOption("tz", f"is no time zone that this machine knows: {tz!r}") from None


def _repeated(local: datetime, zone: ZoneInfo) -> timedelta | None:
    """How much later the clock shows `local` again; None where it does not."""
    gap = _offset(local, zone, 0) - _offset(local, zone, 1)
    return gap if gap > timedelta() else None


def _is_skipped(local: datetime, zone: ZoneInfo) -> bool:
    return _offset(local, zone, 0) < _offset(local, zone, 1)


def _offset(local: datetime, zone: ZoneInfo, fold: int) -> timedelta:
    return local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()


def _change_before(skipped: datetime) -> int:
    """The instant at which the clock jumped over `skipped`: between its two readings, found by halving."""
    before, after = (_ms(skipped.replace(fold=fold)) // 1000 for fold in (1, 0))
    old = _offset_at(before, skipped)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset_at(middle, skipped) == old:
            before = middle
        else:
            after = middle
    return after * 1000


def _offset_at(second: int, aware: datetime) -> timedelta | None:
    return datetime.fromtimestamp(second, aware.tzinfo).utcoffset()


def _ms(aware: datetime) -> int:
    return round((aware.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
