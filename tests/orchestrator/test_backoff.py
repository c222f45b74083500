"""Pauses between attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backoff import MAX_DELAY_MS, Backoff


def test_an_exponential_pause_doubles_and_a_fixed_one_stays() -> None:
    assert [Backoff("exponential", 100).pause_ms(made) for made in (1, 2, 3, 4)] == [100, 200, 400, 800]
    assert [Backoff("fixed", 100).pause_ms(made) for made in (1, 2, 3)] == [100, 100, 100]


def test_a_pause_never_exceeds_its_limit() -> None:
    assert Backoff("exponential", 100, max_ms=250).pause_ms(9) == 250
    assert Backoff("exponential", 100).pause_ms(10_000) == MAX_DELAY_MS


@pytest.mark.parametrize(("draw", "pause"), [(0.0, 1000), (0.5, 750), (0.999999, 500)])
def test_jitter_takes_up_to_its_part_away(draw: float, pause: int) -> None:
    assert Backoff("fixed", 1000, jitter=0.5).pause_ms(1, draw) == pause


@given(
    st.sampled_from(["fixed", "exponential"]),
    st.integers(0, MAX_DELAY_MS),
    st.floats(0, 1),
    st.none() | st.integers(0, MAX_DELAY_MS),
    st.integers(1, 200),
)
def test_any_pause_is_a_whole_number_in_range(
    type_: str, delay_ms: int, jitter: float, max_ms: int | None, made: int
) -> None:
    backoff = Backoff(type_, delay_ms, jitter, max_ms)
    backoff.check()
    pause = backoff.pause_ms(made)
    assert isinstance(pause, int)
    assert 0 <= pause <= (MAX_DELAY_MS if max_ms is None else max_ms)
