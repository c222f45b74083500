"""From figures to the table."""

from bench.compare import Results, Run
from bench.table import RATES, Column, best, median, ratio, render

RATE = Column("c32", "rate", "c32")
IDLE = Column("gpu", "idle_pct", "gpu idle %", is_less_better=True)


def results() -> Results:
    return {
        "c32": {
            "kargah": [{"rate": rate, "twice": 0, "missing": 0} for rate in (9000, 21_000, 12_000)],
            "bullmq": [{"rate": 6000}, {"rate": 4000}],
            "arq": [{"rate": 1000, "twice": 2, "missing": 1}],
            "floor-batched": [{"rate": 50_000}],
        },
        "gpu": {"kargah": [{"idle_pct": 4.0}], "bullmq": [{"idle_pct": 8.0}], "rq": [{"idle_pct": 30.0}]},
    }


def test_the_figure_of_a_contender_is_the_median_of_its_rounds() -> None:
    assert median(results(), RATE, "kargah") == 12_000
    assert median(results(), RATE, "bullmq") == 5000
    assert median(results(), RATE, "saq") is None


def test_the_best_is_neither_a_floor_nor_kargah() -> None:
    assert best(results(), RATE) == ("bullmq", 5000)
    assert best(results(), IDLE) == ("bullmq", 8)
    assert best({}, RATE) is None
    assert best(results(), RATE, of_floors=True) == ("floor-batched", 50_000)


def test_a_ratio_above_one_is_better_also_where_less_is_better() -> None:
    assert ratio(results(), RATE, 5000) == 2.4
    assert ratio(results(), IDLE, 8) == 2
    assert ratio(results(), IDLE, None) is None


def test_a_ratio_to_nothing_or_of_nothing_is_none() -> None:
    assert ratio({}, RATE, 5000) is None
    assert ratio(results(), RATE, 0) is None


def test_the_report_has_a_row_for_who_ran_and_says_what_went_astray() -> None:
    versions = {"arq": {"arq": "0.28.0"}}
    run = Run("2026-11-30", "here", "valkey 9", 3, {}, 61.2, versions, results(), {"saq": "not installed: no"})
    lines = render(run).splitlines()
    assert lines[0] == "2026-11-30; here; valkey 9, AOF everysec; medians of 3 rounds; 61 s"
    assert "|  | c32 | gpu idle % |" in lines
    assert "| **Kargah** | 12,000 | 4.0 |" in lines
    assert "| *floor, batched* | 50,000 | – |" in lines
    assert "| Kargah to the best peer | 2.40 × (bullmq) | 2.00 × (bullmq) |" in lines
    assert "| Kargah to the better floor | 0.24 × | – |" in lines
    assert "| Kargah to BullMQ on Node | 2.40 × | 2.00 × |" in lines
    assert "Jobs that ran twice or not at all, in all rounds: arq c32 twice: 2; arq c32 missing: 1." in lines
    assert "Versions: arq (arq 0.28.0)." in lines
    assert "FAILED: saq: not installed: no" in lines
    assert not any(line.startswith("| saq") for line in lines)


def test_columns_are_of_workloads_that_exist() -> None:
    from bench.workloads import WORKLOADS

    assert {column.workload for column in RATES} == {workload.name for workload in WORKLOADS}
