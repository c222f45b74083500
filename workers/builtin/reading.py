"""Reads a caption back into its scene, in either language: the inverse of ``captions``."""

import re

from workers.builtin.scenes import COLOURS, COUNTS, PAIRS, PLACES, SHAPES, SIZES, Scene, Thing
from workers.builtin.words import meanings

WORD = re.compile(r"[^\W\d_]+|\d|[^\w\s]")
LINKS = ("پس", "ی", "joiner")
RELATIONS = ("left", "right", "above", "below", "and")


class NotInGrammar(ValueError):
    """The caption says something that the built-in model was never taught."""


def read(caption: str) -> Scene:
    """The scene that a caption describes; raises NotInGrammar if it describes none."""
    concepts = _concepts(caption)
    background, concepts = _take_background(concepts)
    groups = _groups(concepts)
    if len(groups) == 2:
        (first, between), (second, _) = groups
        return Scene(background, (_thing(first), _thing(second)), _relation(between))
    if len(groups) != 1:
        raise NotInGrammar(f"expected one or two things, found {len(groups)}")
    before_shape, rest = groups[0]
    number = next((name for name in COUNTS if name in before_shape), None)
    thing = _thing(before_shape)
    if number is not None:
        return Scene(background, (thing,) * len(COUNTS[number]), number)
    return Scene(background, (thing,), _place(rest))


def _concepts(caption: str) -> list[str]:
    known = meanings()
    words = WORD.findall(caption.lower())
    found = [known[word] for word in words if word in known]
    return [concept for concept in found if concept not in LINKS]


def _take_background(concepts: list[str]) -> tuple[str, list[str]]:
    """The colour of the background, which stands before that word in English and after it in Persian."""
    if "background" not in concepts:
        return "white", concepts
    place = concepts.index("background")
    after = place + 1 < len(concepts) and concepts[place + 1] in COLOURS
    start = place if after else place - 1
    pair = concepts[max(start, 0) : start + 2]
    if pair[after] not in COLOURS:
        raise NotInGrammar("the background has no colour")
    return pair[after], concepts[:start] + concepts[start + 2 :]


def _groups(concepts: list[str]) -> list[tuple[list[str], list[str]]]:
    """For each shape the words that describe it, and what follows them up to the next thing."""
    describing = {*COLOURS, *SIZES, *SHAPES, *COUNTS, "a"}
    groups: list[tuple[list[str], list[str]]] = []
    open_group: list[str] | None = None
    for concept in concepts:
        if concept in describing:
            if open_group is None:
                open_group = []
                groups.append((open_group, []))
            open_group.append(concept)
        else:
            open_group = None
            if groups:
                groups[-1][1].append(concept)
    return _with_shape(groups)


def _with_shape(groups: list[tuple[list[str], list[str]]]) -> list[tuple[list[str], list[str]]]:
    """Drops lone articles, such as those of "a picture", and hands what follows them to the thing before."""
    kept: list[tuple[list[str], list[str]]] = []
    for words, rest in groups:
        if any(word in SHAPES for word in words):
            kept.append((words, rest))
        elif kept:
            kept[-1][1].extend(rest)
    return kept


def _thing(words: list[str]) -> Thing:
    colours = [word for word in words if word in COLOURS]
    shapes = [word for word in words if word in SHAPES]
    sizes = [word for word in words if word in SIZES] or ["medium"]
    if len(colours) != 1 or len(shapes) != 1 or len(sizes) != 1:
        raise NotInGrammar("a thing has one colour, one shape and at most one size")
    return Thing(colours[0], shapes[0], sizes[0])


def _relation(words: list[str]) -> str:
    words = ["below" if word == "bottom" else word for word in words]
    said = next((word for word in words if word in RELATIONS), None)
    if said is None:
        raise NotInGrammar("two things stand in no relation")
    return f"{said} of" if f"{said} of" in PAIRS else said


def _place(words: list[str]) -> str:
    row = next((word for word in ("top", "bottom") if word in words), "")
    column = next((word for word in ("left", "right") if word in words), "")
    place = f"{row} {column}".strip()
    return place if place in PLACES else "center"
