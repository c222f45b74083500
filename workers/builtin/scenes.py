"""What a picture of the built-in model can hold: colours, shapes, sizes, and where things stand."""

from dataclasses import dataclass
from random import Random

WIDTH = 128

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 40, 40),
    "orange": (250, 140, 20),
    "yellow": (252, 222, 50),
    "green": (40, 165, 75),
    "blue": (40, 85, 220),
    "purple": (135, 55, 175),
    "pink": (248, 150, 195),
    "black": (16, 16, 16),
    "white": (255, 255, 255),
    "gray": (135, 135, 135),
}
SHAPES = ("circle", "square", "triangle", "star", "heart", "ring", "cross", "diamond")
SIZES = {"small": 17.0, "medium": 22.0, "large": 28.0}
"""Half the height of a thing, in pixels."""

NEAR, MIDDLE, FAR = 31.0, 64.0, 97.0
PLACES: dict[str, tuple[float, float]] = {
    "top left": (NEAR, NEAR),
    "top": (MIDDLE, NEAR),
    "top right": (FAR, NEAR),
    "left": (NEAR, MIDDLE),
    "center": (MIDDLE, MIDDLE),
    "right": (FAR, MIDDLE),
    "bottom left": (NEAR, FAR),
    "bottom": (MIDDLE, FAR),
    "bottom right": (FAR, FAR),
}
PAIRS: dict[str, tuple[tuple[float, float], ...]] = {
    "and": ((32.0, MIDDLE), (96.0, MIDDLE)),
    "left of": ((32.0, MIDDLE), (96.0, MIDDLE)),
    "right of": ((96.0, MIDDLE), (32.0, MIDDLE)),
    "above": ((MIDDLE, 32.0), (MIDDLE, 96.0)),
    "below": ((MIDDLE, 96.0), (MIDDLE, 32.0)),
}
COUNTS: dict[str, tuple[tuple[float, float], ...]] = {
    "two": ((34.0, MIDDLE), (94.0, MIDDLE)),
    "three": ((MIDDLE, 34.0), (34.0, 94.0), (94.0, 94.0)),
    "four": ((34.0, 34.0), (94.0, 34.0), (34.0, 94.0), (94.0, 94.0)),
}

UNSEEN_PAIRS = frozenset(
    {
        ("red", "star"),
        ("orange", "ring"),
        ("yellow", "triangle"),
        ("green", "square"),
        ("blue", "heart"),
        ("purple", "circle"),
        ("pink", "cross"),
        ("black", "diamond"),
    }
)
"""Pairs of colour and shape that no training picture holds, kept to measure composition."""


@dataclass(frozen=True)
class Thing:
    """One shape of one colour."""

    colour: str
    shape: str
    size: str = "medium"


@dataclass(frozen=True)
class Scene:
    """A background and the things on it; ``layout`` is a key of PLACES, PAIRS or COUNTS."""

    background: str
    things: tuple[Thing, ...]
    layout: str = "center"

    @property
    def centres(self) -> tuple[tuple[float, float], ...]:
        """Where each thing stands, in pixels from the top left, before any jitter."""
        if self.layout in PLACES:
            return (PLACES[self.layout],)
        return PAIRS.get(self.layout) or COUNTS[self.layout]


def is_unseen(thing: Thing, background: str) -> bool:
    """Whether training must not show this thing here: 8 of 80 pairs, and 1 in 8 backgrounds of the rest."""
    if (thing.colour, thing.shape) in UNSEEN_PAIRS:
        return True
    names = list(COLOURS)
    place = names.index(thing.colour) * 3 + SHAPES.index(thing.shape) * 5 + names.index(background) * 7
    return place % 8 == 0 and background != "white"


def draw_single(random: Random, placed: float = 0.7) -> Scene:
    """A scene of one thing; a share ``placed`` of them stands anywhere, the others in the middle."""
    background = random.choice(list(COLOURS))
    layout = random.choice(list(PLACES)) if random.random() < placed else "center"
    return Scene(background, (_thing(random, {background}, random.choice(list(SIZES))),), layout)


def draw_count(random: Random) -> Scene:
    """A scene of two to four equal things; three is drawn more often because it is the hardest."""
    background = random.choice(list(COLOURS))
    layout = random.choices(list(COUNTS), weights=(3, 4, 3))[0]
    things = (_thing(random, {background}, "medium"),) * len(COUNTS[layout])
    return Scene(background, things, layout)


def draw_pair(random: Random, sized: float = 0.3) -> Scene:
    """A scene of two different things in a relation; a share ``sized`` of them has sizes of its own."""
    background = random.choice(list(COLOURS))
    layout = random.choices(list(PAIRS), weights=(3, 2, 2, 2, 2))[0]
    own = random.random() < sized
    first, second = (_thing(random, {background}, random.choice(list(SIZES)) if own else "medium") for _ in range(2))
    while (first.colour, first.shape) == (second.colour, second.shape):
        second = _thing(random, {background}, second.size)
    return Scene(background, (first, second), layout)


def draw_seen(random: Random, weights: tuple[float, float, float]) -> Scene:
    """A scene that training may show; ``weights`` are those of single things, counts and pairs."""
    kinds = (draw_single, draw_count, draw_pair)
    while True:
        scene = random.choices(kinds, weights=weights)[0](random)
        if not any(is_unseen(thing, scene.background) for thing in scene.things):
            return scene


def _thing(random: Random, taken: set[str], size: str) -> Thing:
    colour = random.choice([name for name in COLOURS if name not in taken])
    return Thing(colour, random.choice(SHAPES), size)
