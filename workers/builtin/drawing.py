"""Draws a scene with Pillow: flat shapes on a flat background, three times too large and then reduced."""

from collections.abc import Callable
from functools import cache
from math import cos, pi, sin
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from workers.builtin.scenes import COLOURS, SIZES, WIDTH, Scene

SCALE = 3
SILHOUETTE_RADIUS = 200.0
Point = tuple[float, float]


def draw(scene: Scene, random: Random | None = None, jitter: float = 2.0) -> Image.Image:
    """The picture of a scene, RGB, 128 x 128; with ``random`` each thing moves by up to ``jitter`` pixels."""
    side = WIDTH * SCALE
    picture = Image.new("RGB", (side, side), COLOURS[scene.background])
    pen = ImageDraw.Draw(picture)
    for thing, (x, y) in zip(scene.things, scene.centres, strict=True):
        radius = SIZES[thing.size]
        if random is not None:
            x += random.uniform(-jitter, jitter)
            y += random.uniform(-jitter, jitter)
            radius *= random.uniform(0.96, 1.04)
        centre = (x * SCALE, y * SCALE)
        _draw_shape(pen, thing.shape, centre, radius * SCALE, COLOURS[thing.colour], COLOURS[scene.background])
    return picture.reduce(SCALE)


def pixels(scene: Scene, random: Random | None = None) -> NDArray[np.uint8]:
    """The picture of a scene as uint8 (128, 128, 3)."""
    return np.asarray(draw(scene, random))


@cache
def silhouette(shape: str) -> NDArray[np.bool_]:
    """The shape alone, large, in the middle: bool (512, 512)."""
    picture = Image.new("L", (512, 512), 0)
    _draw_shape(ImageDraw.Draw(picture), shape, (256.0, 256.0), SILHOUETTE_RADIUS, 255, 0)
    return np.asarray(picture) > 127


def _draw_shape(
    pen: ImageDraw.ImageDraw,
    shape: str,
    centre: Point,
    radius: float,
    colour: tuple[int, int, int] | int,
    hole: tuple[int, int, int] | int,
) -> None:
    if shape in OUTLINES:
        points = [(centre[0] + x * radius, centre[1] + y * radius) for x, y in OUTLINES[shape]()]
        pen.polygon(points, fill=colour)
        return
    pen.ellipse(_around(centre, radius), fill=colour)
    if shape == "ring":
        pen.ellipse(_around(centre, radius * 0.55), fill=hole)


def _around(centre: Point, radius: float) -> tuple[float, float, float, float]:
    return centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius


def _star() -> list[Point]:
    corners = ((1.0 if i % 2 == 0 else 0.45, pi * (i / 5 - 0.5)) for i in range(10))
    return [(length * cos(angle), length * sin(angle)) for length, angle in corners]


def _heart() -> list[Point]:
    angles = [2 * pi * i / 48 for i in range(48)]
    return [(sin(a) ** 3, -(13 * cos(a) - 5 * cos(2 * a) - 2 * cos(3 * a) - cos(4 * a)) / 16.0 - 0.12) for a in angles]


def _cross() -> list[Point]:
    b, e = 0.33, 0.96
    return [(-b, -e), (b, -e), (b, -b), (e, -b), (e, b), (b, b), (b, e), (-b, e), (-b, b), (-e, b), (-e, -b), (-b, -b)]


OUTLINES: dict[str, Callable[[], list[Point]]] = {
    "square": lambda: [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
    "triangle": lambda: [(0.0, -0.96), (1.0, 0.84), (-1.0, 0.84)],
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "diamond": lambda: [(0.0, -1.0), (0.74, 0.0), (0.0, 1.0), (-0.74, 0.0)],
}
