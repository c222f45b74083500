from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from orchestrator.settings import Settings
from webhooks.schedule import Schedule, parse_retry_after

LADDER = Schedule(Settings().webhook_retry_s)


def test_the_default_ladder_is_ten_attempts_in_75_6_hours() -> None:
    pauses = [LADDER.pause_ms(attempt, draw=0.5) / 1000 for attempt in range(1, LADDER.attempts)]
    assert pauses == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert LADDER.attempts == 10
    assert round(sum(pauses) / 3600, 1) == 75.6


def test_after_the_last_attempt_there_is_no_pause() -> None:
    assert LADDER.pause_ms(10) == 0


def test_each_pause_lies_within_a_fifth_of_its_value() -> None:
    for attempt, value in enumerate(LADDER.pauses_s, start=1):
        drawn = [LADDER.pause_ms(attempt) / 1000 for _ in range(500)]
        assert 0.8 * value <= min(drawn)
        assert max(drawn) <= 1.2 * value
        assert max(drawn) - min(drawn) > 0.3 * value


@pytest.mark.parametrize(
    ("asked_s", "pause_s"),
    [(0, 300), (-5, 300), (299, 300), (400, 400), (600, 600), (601, 600), (1e12, 600), (float("inf"), 600)],
)
def test_retry_after_is_kept_within_one_and_two_times_the_pause(asked_s: float, pause_s: float) -> None:
    assert LADDER.pause_ms(2, retry_after_s=asked_s, draw=0.0) == pause_s * 1000


def test_a_receiver_that_has_too_much_to_do_gets_at_least_a_minute() -> None:
    assert LADDER.pause_ms(1, slow_down=True) == 60_000
    assert LADDER.pause_ms(1, slow_down=True, retry_after_s=7) == 60_000
    assert LADDER.pause_ms(2, slow_down=True, draw=0.5) == 300_000


def test_a_schedule_may_be_empty() -> None:
    assert Schedule(()).attempts == 1
    assert Schedule(()).pause_ms(1) == 0


NOW = 1_796_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120),
        ("0", 0),
        ("9" * 60, float("9" * 60)),
        ("9" * 65, None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("١٢٠", None),
        ("Wed, 99 Nov 2026 25:61:61 GMT", None),
        (format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True), 90),
        (format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True), -90),
        (format_datetime(datetime.fromtimestamp(NOW + 90, UTC)).replace("+0000", "-0000"), 90),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
