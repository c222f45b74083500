"""Says what a picture shows, by rule: background, then each connected thing with its colour, shape and place."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from workers.builtin.drawing import silhouette
from workers.builtin.scenes import COLOURS, COUNTS, PAIRS, PLACES, SHAPES, WIDTH, Scene, Thing

Mask = NDArray[np.bool_]
PALETTE = np.array(list(COLOURS.values()), dtype=np.float32)
NAMES = list(COLOURS)
FAR_FROM_GROUND = 55.0
MIN_AREA = 90
SIDE = 32
SHIFTED = WIDTH / 12
"""How much two centres must differ to stand left and right of, or above and below, one another."""


@dataclass(frozen=True)
class Seen:
    """One thing in a picture; x and y are the middle of its box in pixels."""

    colour: str
    shape: str
    x: float
    y: float


@dataclass(frozen=True)
class Sight:
    """What a picture shows."""

    background: str
    things: tuple[Seen, ...]


@dataclass(frozen=True)
class Verdict:
    """Which parts of a scene a picture shows; None where the scene does not ask."""

    background: bool
    colour: bool
    shape: bool
    count: bool
    position: bool | None = None
    both: bool | None = None
    relation: bool | None = None


def look(picture: NDArray[np.uint8]) -> Sight:
    """What a picture shows: uint8 (128, 128, 3)."""
    colours = picture.astype(np.float32)
    border = np.concatenate([colours[:3].reshape(-1, 3), colours[-3:].reshape(-1, 3), colours[:, 0], colours[:, -1]])
    ground = np.median(border, axis=0)
    foreground = np.linalg.norm(colours - ground, axis=2) > FAR_FROM_GROUND
    parts = [part for part in components(foreground) if part.sum() >= MIN_AREA]
    return Sight(_nearest(ground), tuple(_describe(part, colours, ground) for part in parts))


def judge(scene: Scene, sight: Sight) -> Verdict:
    """Compares a picture with the scene it should show; with two kinds of things each is looked for apart."""
    background = sight.background == scene.background
    wanted = [(thing.colour, thing.shape) for thing in scene.things]
    found = [(thing.colour, thing.shape) for thing in sight.things]
    colour = Counter(c for c, _ in wanted) == Counter(c for c, _ in found)
    shape = Counter(s for _, s in wanted) == Counter(s for _, s in found)
    count = len(found) == len(wanted)
    if scene.layout in COUNTS:
        colour = bool(found) and all(c == wanted[0][0] for c, _ in found)
        shape = bool(found) and all(s == wanted[0][1] for _, s in found)
        return Verdict(background, colour, shape, count)
    if scene.layout in PLACES:
        first = max(sight.things, key=lambda thing: _closeness(thing, scene.things[0]), default=None)
        return Verdict(background, colour, shape, count, first is not None and place_of(first) == scene.layout)
    both = Counter(wanted) == Counter(found)
    relation = count and _order_is_kept(scene, sight.things)
    return Verdict(background, colour, shape, count, both=both, relation=relation)


def place_of(thing: Seen) -> str:
    """The ninth of the picture where a thing stands."""
    ends = (47.0, 81.0)
    column, row = (sum(value > end for end in ends) for value in (thing.x, thing.y))
    return list(PLACES)[row * 3 + column]


def components(mask: Mask) -> list[Mask]:
    """The connected parts of a mask, by spreading labels along rows and columns until nothing changes."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        before = labels.copy()
        for axis in (0, 1):
            for flip in (False, True):
                view = labels.swapaxes(0, axis)
                view = view[::-1] if flip else view
                for line in range(1, len(view)):
                    np.maximum(view[line], np.where(view[line] > 0, view[line - 1], 0), out=view[line])
        if np.array_equal(before, labels):
            return [labels == label for label in np.unique(labels) if label > 0]


def _describe(part: Mask, colours: NDArray[np.float32], ground: NDArray[np.float32]) -> Seen:
    own = np.median(colours[part], axis=0)
    nearer = np.linalg.norm(colours - own, axis=2) < np.linalg.norm(colours - ground, axis=2)
    sharp = part & nearer
    rows, columns = np.nonzero(sharp if sharp.any() else part)
    box = sharp[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    x, y = (columns.min() + columns.max() + 1) / 2, (rows.min() + rows.max() + 1) / 2
    return Seen(_nearest(own), _shape_of(box), float(x), float(y))


def _shape_of(box: Mask) -> str:
    height, width = box.shape
    grown = box[np.arange(SIDE) * height // SIDE][:, np.arange(SIDE) * width // SIDE]
    overlaps = {}
    for shape, template in _templates().items():
        either = (grown | template).sum()
        overlaps[shape] = (grown & template).sum() / max(int(either), 1)
    return max(overlaps, key=lambda shape: float(overlaps[shape]))


@cache
def _templates() -> dict[str, Mask]:
    return {shape: silhouette(shape, SIDE) for shape in SHAPES}


def _nearest(colour: NDArray[np.float32]) -> str:
    return NAMES[int(np.linalg.norm(PALETTE - colour, axis=1).argmin())]


def _closeness(seen: Seen, thing: Thing) -> int:
    return 2 * (seen.colour == thing.colour) + (seen.shape == thing.shape)


def _order_is_kept(scene: Scene, seen: tuple[Seen, ...]) -> bool:
    """Whether the things stand in relation, told apart by colour and shape together as well as can be."""
    first, second = seen
    straight = _closeness(first, scene.things[0]) + _closeness(second, scene.things[1])
    crossed = _closeness(first, scene.things[1]) + _closeness(second, scene.things[0])
    if straight == crossed:
        return False
    if crossed > straight:
        first, second = second, first
    (x1, y1), (x2, y2) = PAIRS[scene.layout]
    across, down = second.x - first.x, second.y - first.y
    if x1 != x2:
        return abs(across) > abs(down) and across * (x2 - x1) > SHIFTED * abs(x2 - x1)
    return abs(down) > abs(across) and down * (y2 - y1) > SHIFTED * abs(y2 - y1)
