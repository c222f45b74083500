"""The table of BullMQ's behaviours has every row once, with a verdict, and tests that exist."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import lua

TESTS = Path(__file__).parents[1]
PAGE = (Path(lua.__file__).parent / "SEMANTICS.md").read_text()
VERDICTS = {"mirrored", "better", "in part", "left out"}
ROWS_IN_ALL = 125


class Row(NamedTuple):
    """A line of the table: rows of the reference, the verdict, what there is, the tests that show it."""

    numbers: tuple[int, ...]
    verdict: str
    what: str
    tests: tuple[str, ...]


def _rows() -> list[Row]:
    found = []
    for line in PAGE.splitlines():
        if read := re.fullmatch(r"\| (\d+)(?:-(\d+))? \| (.+?) \| (.+) \| (.+?) \|", line):
            first, last, verdict, what, tests = read.groups()
            numbers = tuple(range(int(first), int(last or first) + 1))
            found.append(Row(numbers, verdict, what, tuple(re.findall(r"`([^`]+)`", tests))))
    return found


ROWS = _rows()


@cache
def _tests_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_is_there_once_and_in_order() -> None:
    assert [number for row in ROWS for number in row.numbers] == list(range(1, ROWS_IN_ALL + 1))


def test_the_sum_is_right() -> None:
    counted = Counter(row.verdict for row in ROWS for _ in row.numbers)
    assert set(counted) == VERDICTS
    told = dict(re.findall(r"(\d+) (mirrored|better|in part|left out)", PAGE.split("In all:")[1].split("\n")[0]))
    assert {verdict: int(count) for count, verdict in told.items()} == counted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.numbers[0]}")
def test_a_row_is_shown_by_tests_that_exist(row: Row) -> None:
    assert row.tests or row.verdict == "left out"
    for test in row.tests:
        file, _, name = test.partition("::")
        assert name in _tests_in(file), test


@pytest.mark.parametrize("row", [row for row in ROWS if row.verdict == "left out"], ids=lambda row: f"{row.numbers[0]}")
def test_what_is_left_out_has_a_reason(row: Row) -> None:
    assert ": " in row.what
