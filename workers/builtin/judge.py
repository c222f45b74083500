"""Says what a picture shows, by rule: background, then each connected thing with its colour, shape and place."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from workers.builtin.drawing import SILHOUETTE_RADIUS, silhouette
from workers.builtin.scenes import COLOURS, COUNTS, PAIRS, PLACES, SHAPES, SIZES, WIDTH, Scene, Thing

Mask = NDArray[np.bool_]
PALETTE = np.array(list(COLOURS.values()), dtype=np.float32)
NAMES = list(COLOURS)
FAR_FROM_GROUND = 55.0
MIN_AREA = 90
SIDE = 48
SHIFTED = WIDTH / 12
"""How much two centres must differ to stand left and right of, or above and below, one another."""


@dataclass(frozen=True)
class Seen:
    """One thing in a picture; x and y are the middle of its box in pixels."""

    colour: str
    shape: str
    size: str
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
    size: bool | None = None
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
        size = first is not None and first.size == scene.things[0].size
        return Verdict(background, colour, shape, count, size, first is not None and place_of(first) == scene.layout)
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
    sharp = part & nearer if (part & nearer).any() else part
    rows, columns = np.nonzero(sharp)
    x, y = (columns.min() + columns.max() + 1) / 2, (rows.min() + rows.max() + 1) / 2
    shape = shape_of(sharp)
    return Seen(_nearest(own), shape, size_of(sharp, shape), float(x), float(y))


def shape_of(mask: Mask) -> str:
    """The shape whose silhouette overlaps the mask most, when both have the same middle and the same area.

    Middle and area, unlike a box, hardly move when a point is blunt, and proportions are kept.
    """
    standard = _standard(mask)
    overlaps = {shape: _overlap(standard, template) for shape, template in _templates().items()}
    return max(overlaps, key=overlaps.__getitem__)


def size_of(mask: Mask, shape: str) -> str:
    """The size at which the shape covers nearly as much as the mask."""
    radius = SILHOUETTE_RADIUS * float(np.sqrt(mask.sum() / silhouette(shape).sum()))
    return min(SIZES, key=lambda size: abs(SIZES[size] - radius))


def _standard(mask: Mask) -> Mask:
    """The mask moved to the middle of a square of SIDE and scaled to a quarter of its area."""
    rows, columns = np.nonzero(mask)
    step = 2.0 * np.sqrt(len(rows)) / SIDE
    grid = (np.arange(SIDE) + 0.5 - SIDE / 2) * step
    y = np.floor(rows.mean() + 0.5 + grid).astype(int)
    x = np.floor(columns.mean() + 0.5 + grid).astype(int)
    height, width = mask.shape
    inside = ((y >= 0) & (y < height))[:, None] & ((x >= 0) & (x < width))[None, :]
    sampled: Mask = inside & mask[np.ix_(y.clip(0, height - 1), x.clip(0, width - 1))]
    return sampled


def _overlap(one: Mask, other: Mask) -> float:
    return float((one & other).sum() / max(int((one | other).sum()), 1))


@cache
def _templates() -> dict[str, Mask]:
    return {shape: _standard(silhouette(shape)) for shape in SHAPES}


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
