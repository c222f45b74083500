"""Captions and the reading of them are inverses, in both languages."""

from random import Random

import pytest

from workers.builtin.captions import LANGUAGES, caption
from workers.builtin.reading import NotInGrammar, read
from workers.builtin.scenes import Scene, Thing, draw_count, draw_pair, draw_single


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("draw", [draw_single, draw_count, draw_pair])
def test_every_caption_reads_back_as_its_scene(language: str, draw: object) -> None:
    random = Random(7)
    for _ in range(300):
        scene: Scene = draw(random)  # type: ignore[operator]
        assert read(caption(scene, language)) == scene
        said = caption(scene, language, random)
        assert read(said) == scene, said


@pytest.mark.parametrize(
    "text",
    [
        "a red circle",
        "A RED CIRCLE on a white backdrop.",
        "یک دایره قرمز",
        "یک دایره قرمز روی زمینه سفید",
        "یک دایره‌ی قرمز روی پس‌زمینه‌ی سفید",
        "يك دایرهٔ قرمز",
    ],
)
def test_people_may_say_it_in_many_ways(text: str) -> None:
    assert read(text) == Scene("white", (Thing("red", "circle"),))


@pytest.mark.parametrize(
    ("text", "layout"), [("3 blue stars", "three"), ("۳ ستاره آبی", "three"), ("٤ ستاره آبی", "four")]
)
def test_digits_count_like_words(text: str, layout: str) -> None:
    scene = read(text)
    assert scene.layout == layout
    assert set(scene.things) == {Thing("blue", "star")}


@pytest.mark.parametrize("text", ["", "a cat", "a red circle on a background", "a red blue circle", "a circle"])
def test_what_is_not_in_the_grammar_is_said_so(text: str) -> None:
    with pytest.raises(NotInGrammar):
        read(text)
