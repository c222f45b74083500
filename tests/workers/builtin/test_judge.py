"""The judge is right about true drawings, and is not fooled by wrong ones."""

from random import Random

import numpy as np
import pytest

from workers.builtin.drawing import pixels
from workers.builtin.judge import judge, look
from workers.builtin.scenes import Scene, Thing
from workers.builtin.score import COLUMNS, ROWS, scenes, table, tally


@pytest.mark.parametrize("row", ROWS)
def test_true_drawings_are_judged_right(row: str) -> None:
    wanted = scenes(row, 60)
    random = Random(3)
    shares = tally(wanted, [pixels(scene, random) for scene in wanted])
    assert all(share is None or share >= 0.99 for share in shares.values()), shares


def test_a_row_always_holds_the_same_scenes() -> None:
    assert scenes("a pair", 20) == scenes("a pair", 20)


RED, BLUE = Thing("red", "circle"), Thing("blue", "square")


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        (Scene("white", (BLUE, RED), "left of"), {"relation"}),
        (Scene("white", (RED, BLUE), "above"), {"relation"}),
        (Scene("yellow", (RED, BLUE), "left of"), {"background"}),
        (Scene("white", (RED, RED), "two"), {"colour", "shape", "both", "relation"}),
        (Scene("white", (Thing("blue", "circle"), Thing("red", "square")), "left of"), {"both", "relation"}),
        (Scene("white", (RED,)), {"colour", "shape", "count", "both", "relation"}),
    ],
)
def test_a_wrong_pair_is_found_out(shown: Scene, wrong: set[str]) -> None:
    wanted = Scene("white", (RED, BLUE), "left of")
    verdict = judge(wanted, look(pixels(shown)))
    assert {column for column in COLUMNS if getattr(verdict, column) is False} == wrong


def test_a_thing_in_another_place_is_found_out() -> None:
    verdict = judge(Scene("white", (RED,), "top left"), look(pixels(Scene("white", (RED,), "top right"))))
    assert verdict.position is False


def test_an_empty_picture_is_wrong_about_all_but_the_background() -> None:
    verdict = judge(Scene("white", (RED,)), look(np.full((128, 128, 3), 255, np.uint8)))
    assert verdict.background
    assert not any((verdict.colour, verdict.shape, verdict.count, verdict.position))


def test_the_table_has_a_line_a_row() -> None:
    shares = dict.fromkeys(COLUMNS, None) | {"shape": 0.5}
    assert table({"one thing (en)": shares}).splitlines()[-1] == "| one thing (en) |  |  | 0.500 |  |  |  |  |  |"
