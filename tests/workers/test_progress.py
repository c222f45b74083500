"""The bar and its forecast."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.progress import Meter, Pace


def run_through(steps: int, images: int, pace: Pace, ms: float = 100.0) -> list[float]:
    """All fractions of an attempt in which each step takes `ms` and each decoding 300."""
    meter = Meter(steps, images, pace)
    fractions = [meter.read().fraction]
    meter.loaded()
    fractions.append(meter.read().fraction)
    for image in range(images):
        meter.denoising()
        for step in range(1, steps + 1):
            meter.stepped(image, step, ms)
            fractions.append(meter.read().fraction)
        meter.decoded()
        fractions.append(meter.read().fraction)
    meter.storing(300.0 * images)
    fractions.append(meter.read().fraction)
    return fractions


@given(steps=st.integers(1, 150), images=st.integers(1, 4))
def test_the_bar_begins_at_nothing_never_goes_back_and_ends_before_storing(steps: int, images: int) -> None:
    fractions = run_through(steps, images, Pace())
    assert fractions[0] == 0.0
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(0.98)


def test_nothing_is_foretold_before_a_step_was_timed() -> None:
    meter = Meter(10, 1, Pace())
    meter.loaded()
    assert meter.read().eta_ms is None
    assert meter.read().ms_per_step is None
    meter.stepped(0, 1, 100.0)
    assert meter.read().eta_ms == 9 * 100 + 200  # a decoding never seen is taken for two steps


def test_the_next_attempt_of_a_model_is_foretold_from_the_last_one() -> None:
    pace = Pace()
    run_through(10, 2, pace)
    meter = Meter(20, 2, pace)
    assert meter.read().eta_ms is None  # how long loading takes is not known
    meter.loaded()
    assert meter.read().eta_ms == 40 * 100 + 2 * 300


def test_one_slow_step_moves_the_mean_by_its_weight_only() -> None:
    pace = Pace()
    for ms in (100.0, 100.0, 200.0):
        pace.step_took(ms)
    assert pace.step_ms == pytest.approx(130.0)


def test_steps_count_over_all_pictures() -> None:
    meter = Meter(5, 3, Pace())
    meter.stepped(1, 2, 10.0)
    assert (meter.read().step, meter.read().steps) == (7, 15)
    assert meter.read().phase == "denoising"
    meter.stepped(2, 5, 10.0)
    assert meter.all_denoised
    assert meter.read().phase == "decoding"
