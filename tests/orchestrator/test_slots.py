"""When cron expressions come, above all when clocks change: D4 of shared/reliability.md."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import InvalidOption
from orchestrator.slots import ALIASES, Cron

DAY_MS = 24 * 3600 * 1000

CHANGES = [
    # zone, the day on which clocks go forward, the day on which they go back, by how many minutes, and when
    ("Europe/Berlin", "2026-03-29", "2026-10-25", 60, 2),
    ("America/New_York", "2026-03-08", "2026-11-01", 60, 1),
    ("Australia/Lord_Howe", "2026-10-04", "2026-04-05", 30, 1),
    ("Asia/Tehran", "2022-03-22", "2021-09-22", 60, 23),
]

on_all_changes = pytest.mark.parametrize(("tz", "forward", "back", "minutes", "hour"), CHANGES, ids=lambda v: str(v))


def at(text: str, tz: str = "UTC") -> int:
    """An instant, by its local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp() * 1000)


def local(instant: int, tz: str) -> str:
    """What the clock shows."""
    return datetime.fromtimestamp(instant / 1000, ZoneInfo(tz)).strftime("%Y-%m-%d %H:%M")


def days_later(day: str, days: int) -> str:
    return (datetime.fromisoformat(day) + timedelta(days=days)).date().isoformat()


def day_before(day: str) -> str:
    return days_later(day, -1)


def between(expression: str, tz: str, start: int, end: int) -> list[int]:
    """The slots after one instant and up to another."""
    return list(takewhile(lambda slot: slot <= end, Cron(expression, tz).after(start)))


@on_all_changes
def test_a_slot_at_a_time_of_day_comes_once_a_day_also_when_clocks_change(
    tz: str, forward: str, back: str, minutes: int, hour: int
) -> None:
    for day in (forward, back):
        for time in ("0:00", "0:45", "1:15", "1:45", "2:00", "2:15", "2:59", "3:00", "12:30", "23:30"):
            hours, mins = time.split(":")
            start, end = (at(f"{days_later(day, days)} 12:00", tz) for days in (-2, 3))
            slots = between(f"{int(mins)} {hours} * * *", tz, start, end)
            days = Counter(local(slot, tz)[:10] for slot in slots)
            assert set(days.values()) == {1}, (day, time, days)
            assert len(days) == 5


@on_all_changes
def test_every_minute_of_some_hours_comes_once_for_each_local_minute(
    tz: str, forward: str, back: str, minutes: int, hour: int
) -> None:
    start, end = (at(f"{day} 12:00", tz) for day in (day_before(back), back))
    slots = between("* 0-3,20-23 * * *", tz, start, end)
    shown = [local(slot, tz) for slot in slots]
    assert len(shown) == len(set(shown)) == 8 * 60
    start, end = (at(f"{day} 12:00", tz) for day in (day_before(forward), forward))
    shown = [local(slot, tz) for slot in between("* 0-3,20-23 * * *", tz, start, end)]
    assert len(shown) == len(set(shown)) == 8 * 60 - minutes


@on_all_changes
def test_an_hourly_slot_comes_in_every_real_hour(tz: str, forward: str, back: str, minutes: int, hour: int) -> None:
    for day in (forward, back):
        start = at(f"{day_before(day)} 06:00", tz) // 3_600_000 * 3_600_000
        slots = between("*/30 * * * *", tz, start, start + 2 * DAY_MS)
        assert slots == [start + k * 1_800_000 for k in range(1, 97)]
        slots = between("30 * * * *", tz, start, start + 2 * DAY_MS)
        gaps = {after - before for before, after in pairwise(slots)}
        assert gaps <= {3_600_000, 1_800_000, 5_400_000}
        if minutes == 60:
            assert gaps == {3_600_000}


@on_all_changes
def test_of_the_minutes_that_are_shown_twice_some_hours_take_the_first_and_every_hour_both(
    tz: str, forward: str, back: str, minutes: int, hour: int
) -> None:
    noon = at(f"{day_before(back)} 12:00", tz)
    twice = 60 - minutes + 15  # a minute that is shown twice
    once = between(f"{twice} {hour} * * *", tz, noon, noon + DAY_MS)
    both = [
        slot for slot in between(f"{twice} * * * *", tz, noon, noon + DAY_MS) if local(slot, tz)[11:13] == f"{hour:02}"
    ]
    assert len(both) == 2
    assert both[1] - both[0] == minutes * 60_000
    assert once == both[:1]


@on_all_changes
def test_a_slot_that_the_clock_jumps_over_comes_right_after(
    tz: str, forward: str, back: str, minutes: int, hour: int
) -> None:
    noon = at(f"{day_before(forward)} 12:00", tz)
    changed = next(
        minute for minute in range(noon, noon + DAY_MS, 60_000) if _offset(minute, tz) != _offset(minute - 60_000, tz)
    )
    skipped = datetime.fromtimestamp(changed / 1000, ZoneInfo(tz)) - timedelta(minutes=minutes // 2)
    slots = between(f"{skipped.minute} {skipped.hour} * * *", tz, noon, noon + DAY_MS)
    assert slots == [changed]
    assert between(f"{skipped.minute} * * * *", tz, changed - 60_000, changed) == (
        [changed] if int(local(changed, tz)[14:]) == skipped.minute else []
    )


def _offset(instant: int, tz: str) -> timedelta | None:
    return datetime.fromtimestamp(instant / 1000, ZoneInfo(tz)).utcoffset()


def test_a_day_that_a_zone_left_out_still_has_its_daily_slot() -> None:
    start = at("2011-12-28 13:00", "Pacific/Apia")
    shown = [local(slot, "Pacific/Apia") for slot in islice(Cron("0 12 * * *", "Pacific/Apia").after(start), 3)]
    assert shown == ["2011-12-29 12:00", "2011-12-31 00:00", "2011-12-31 12:00"]


@given(
    expression=st.sampled_from(["*/5 * * * *", "17 */2 * * *", "30 2 * * *", "0 0 * * MON", "0,30 1-3 * 3,4,10,11 *"]),
    zone=st.sampled_from([change[0] for change in CHANGES]),
    day=st.integers(0, 3000),
    cut=st.integers(0, 10_000),
)
@settings(deadline=None, max_examples=60)
def test_slots_continued_from_any_instant_are_the_slots_of_one_go(
    expression: str, zone: str, day: int, cut: int
) -> None:
    """A refill begins where the slots before ended, or where a schedule ran dry: none is lost or doubled."""
    start = at("2018-01-01 00:00") + day * DAY_MS
    whole = list(islice(Cron(expression, zone).after(start), 40))
    middle = start + (whole[-1] - start) * cut // 10_000
    assert (
        list(islice(Cron(expression, zone).after(middle), 5))[: sum(slot > middle for slot in whole)]
        == [slot for slot in whole if slot > middle][:5]
    )
    assert whole == sorted(set(whole))


def test_six_fields_begin_with_seconds() -> None:
    start = at("2026-01-01 00:00")
    assert list(islice(Cron("*/20 * * * * *").after(start), 3)) == [start + 20_000, start + 40_000, start + 60_000]
    assert list(islice(Cron("30 0 12 * * *", "Europe/Berlin").after(start), 1)) == [at("2026-01-01 11:00") + 30_000]


@pytest.mark.parametrize("alias", ALIASES)
def test_names_of_usual_expressions_are_known(alias: str) -> None:
    start = at("2026-01-31 23:30")
    assert list(islice(Cron(alias.upper()).after(start), 3)) == list(islice(Cron(ALIASES[alias]).after(start), 3))


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 9 * * MON-FRI", "2026-02-02 09:00"),
        ("0 9 L * *", "2026-02-28 09:00"),
        ("0 9 LW * *", "2026-02-27 09:00"),
        ("0 9 * * 5L", "2026-02-27 09:00"),
        ("0 9 * * TUE#2", "2026-02-10 09:00"),
        ("0 9 13 * FRI", "2026-02-06 09:00"),
        ("0 0 29 FEB *", "2028-02-29 00:00"),
    ],
)
def test_what_an_expression_may_say(expression: str, first: str) -> None:
    assert next(Cron(expression).after(at("2026-01-31 10:00"))) == at(first)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("", "1 to 256"),
        ("x" * 300, "1 to 256"),
        (5, "1 to 256"),
        ("* * * *", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 31 2 *", "bad day-of-month"),
        ("* * * * MON#6", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("@never", "is none of @yearly"),
    ],
)
def test_an_invalid_expression_says_what_is_wrong_with_it(expression: str, word: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^cron: .*{word}"):
        Cron(expression)


@pytest.mark.parametrize("tz", ["", "Berlin", "Europe", "../etc/passwd", "/etc/localtime", "Europe/Berlin\0", None, 1])
def test_a_time_zone_that_is_none_is_refused(tz: str) -> None:
    with pytest.raises(InvalidOption, match=r"^tz: "):
        Cron("@daily", tz)


@given(expression=st.text("0123456789*/,-#LWMONFRI @", max_size=30))
@settings(deadline=None, max_examples=300)
def test_any_text_is_an_expression_or_refused(expression: str) -> None:
    try:
        cron = Cron(expression)
    except InvalidOption:
        return
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    slots = list(islice(cron.after(start), 3))
    assert slots == sorted(set(slots))
    assert all(slot > start for slot in slots)


def test_an_expression_that_never_comes_ends() -> None:
    assert list(Cron("* * */20 * 1L").after(at("2026-01-01 00:00"))) == []
