"""The memory policy: what is dropped, what is saved, what is learnt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.vram import BYTES_PER_PIXEL, MARGIN, MemoryBudget, Plan

GB = 10**9
PIXELS = 512 * 512


def budget_with(*models: tuple[str, int], budget_bytes: int = 10 * GB) -> MemoryBudget:
    budget = MemoryBudget(budget_bytes)
    for name, size in models:
        budget.loaded(name, size)
    return budget


def test_a_job_that_fits_drops_nothing() -> None:
    budget = budget_with(("a", 2 * GB), ("b", 2 * GB))
    assert budget.plan("c", 2 * GB, PIXELS) == Plan()
    assert budget.plan("a", 0, PIXELS) == Plan()


def test_the_least_recently_used_model_goes_first_and_no_more_than_must() -> None:
    budget = budget_with(("a", 3 * GB), ("b", 3 * GB), ("c", 2 * GB))
    budget.used("a")
    assert budget.kept == ("b", "c", "a")
    assert budget.plan("d", 2 * GB, PIXELS) == Plan(evict=("b",))


def test_the_model_that_is_wanted_is_never_dropped() -> None:
    budget = budget_with(("a", 4 * GB), ("b", 4 * GB))
    plan = budget.plan("a", 0, 4 * PIXELS * 2)
    assert plan.evict == ("b",)


def test_a_job_too_large_even_alone_drops_everything_and_saves_memory_only_if_it_was_measured() -> None:
    budget = budget_with(("a", 2 * GB), ("b", 2 * GB))
    assert budget.plan("c", 12 * GB, PIXELS) == Plan(evict=("a", "b"))
    budget.loaded("c", 2 * GB)
    budget.measured("c", PIXELS, 8 * GB)
    assert budget.plan("c", 0, 4 * PIXELS) == Plan(evict=("a", "b"), economy=True)


def test_a_measured_peak_replaces_the_guess_and_the_largest_counts() -> None:
    budget = budget_with(("a", 2 * GB))
    assert budget.peak_bytes("a", 2 * GB, PIXELS) == 2 * GB + PIXELS * BYTES_PER_PIXEL
    budget.measured("a", PIXELS, 2 * GB + PIXELS * 1000)
    assert budget.peak_bytes("a", 2 * GB, PIXELS) == 2 * GB + PIXELS * 1000
    budget.measured("a", PIXELS, 2 * GB + PIXELS * 500)
    assert budget.peak_bytes("a", 2 * GB, PIXELS) == 2 * GB + PIXELS * 1000


def test_a_measured_peak_does_not_count_the_other_models_that_were_there() -> None:
    budget = budget_with(("a", 2 * GB), ("b", 3 * GB))
    budget.measured("a", PIXELS, 5 * GB + PIXELS * 1000)
    assert budget.peak_bytes("a", 2 * GB, PIXELS) == 2 * GB + PIXELS * 1000


def test_a_dropped_model_frees_its_room() -> None:
    budget = budget_with(("a", 9 * GB))
    assert budget.plan("b", 2 * GB, PIXELS).evict == ("a",)
    budget.dropped("a")
    budget.dropped("a")
    assert budget.plan("b", 2 * GB, PIXELS) == Plan()


def test_four_bytes_a_number_double_the_guess() -> None:
    assert MemoryBudget(GB, bytes_per_number=4).peak_bytes("a", 0, 100) == 200 * BYTES_PER_PIXEL


@given(
    sizes=st.lists(st.integers(1, 5 * GB), max_size=6),
    weights=st.integers(1, 12 * GB),
    pixels=st.integers(64 * 64, 2048 * 2048),
)
def test_what_a_plan_leaves_fits_unless_nothing_is_left(sizes: list[int], weights: int, pixels: int) -> None:
    budget = budget_with(*((str(number), size) for number, size in enumerate(sizes)))
    plan = budget.plan("new", weights, pixels)
    left = sum(size for number, size in enumerate(sizes) if str(number) not in plan.evict)
    fits = left + budget.peak_bytes("new", weights, pixels) <= 10 * GB * (1 - MARGIN) + 1
    assert fits or len(plan.evict) == len(sizes)
    assert plan.evict == tuple(map(str, range(len(plan.evict))))
    assert not plan.economy


def test_a_peak_below_the_weights_is_taken_for_nothing() -> None:
    budget = budget_with(("a", 2 * GB))
    budget.measured("a", PIXELS, GB)
    assert budget.peak_bytes("a", 2 * GB, PIXELS) == pytest.approx(2 * GB)
