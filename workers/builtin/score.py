"""Measures the built-in model: 200 pictures a row, judged by rule, as a table and as JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.builtin.captions import caption
from workers.builtin.drawing import pixels
from workers.builtin.judge import judge, look
from workers.builtin.progress import Progress
from workers.builtin.scenes import UNSEEN_PAIRS, Scene, Thing, draw_count, draw_pair, draw_single, is_unseen

COLUMNS = ("background", "colour", "shape", "count", "size", "position", "both", "relation")
Picture = NDArray[np.uint8]
Painter = Callable[[list[tuple[str, int]]], list[Picture]]
BATCH = 10


def _seen(draw: Callable[[Random], Scene]) -> Callable[[Random], Scene]:
    def drawn(random: Random) -> Scene:
        while True:
            scene = draw(random)
            if not any(is_unseen(thing, scene.background) for thing in scene.things):
                return scene

    return drawn


def _unseen_pair(random: Random) -> Scene:
    scene = draw_single(random)
    colour, shape = random.choice([pair for pair in sorted(UNSEEN_PAIRS) if pair[0] != scene.background])
    return Scene(scene.background, (Thing(colour, shape, scene.things[0].size),), scene.layout)


def _unseen_background(random: Random) -> Scene:
    while True:
        scene = draw_single(random)
        thing = scene.things[0]
        if is_unseen(thing, scene.background) and (thing.colour, thing.shape) not in UNSEEN_PAIRS:
            return scene


ROWS: dict[str, Callable[[Random], Scene]] = {
    "one thing": _seen(draw_single),
    "one thing, unseen colour and shape": _unseen_pair,
    "one thing, unseen background": _unseen_background,
    "two to four": _seen(draw_count),
    "a pair": _seen(draw_pair),
}


def scenes(row: str, count: int) -> list[Scene]:
    """The scenes of a row, always the same."""
    random = Random(f"score {row}")
    return [ROWS[row](random) for _ in range(count)]


def captioned(row: str, language: str, count: int) -> Iterator[tuple[Scene, str]]:
    """The scenes of a row with captions as people say them, always the same."""
    random = Random(f"words {row} {language}")
    for scene in scenes(row, count):
        yield scene, caption(scene, language, random)


def tally(wanted: list[Scene], shown: list[Picture]) -> dict[str, float | None]:
    """The share of pictures that are right, for each column; None where no scene asks."""
    verdicts = [asdict(judge(scene, look(picture))) for scene, picture in zip(wanted, shown, strict=True)]
    shares: dict[str, float | None] = {}
    for column in COLUMNS:
        asked = [verdict[column] for verdict in verdicts if verdict[column] is not None]
        shares[column] = round(sum(asked) / len(asked), 4) if asked else None
    return shares


def measure(paint: Painter, count: int, rows: list[str], languages: list[str]) -> dict[str, dict[str, float | None]]:
    """Every row in every language, painted and judged."""
    results = {}
    for row in rows:
        for language in languages:
            pairs = list(captioned(row, language, count))
            progress = Progress(f"{row} ({language})", 1.0)
            shown: list[Picture] = []
            for start in range(0, count, BATCH):
                batch = [(text, start + offset) for offset, (_, text) in enumerate(pairs[start : start + BATCH])]
                shown += paint(batch)
                progress.show(len(shown), f"of {count}")
            results[f"{row} ({language})"] = tally([scene for scene, _ in pairs], shown)
    return results


def ceilings(folder: Path, count: int) -> dict[str, dict[str, float | None]]:
    """What no denoiser can exceed: the drawings themselves, and the drawings after the autoencoder."""
    from workers.builtin.pipeline import round_trip

    results = {}
    for row in ROWS:
        wanted = scenes(row, count)
        random = Random(f"ceiling {row}")
        drawn = [pixels(scene, random) for scene in wanted]
        results[f"{row}, drawn"] = tally(wanted, drawn)
        results[f"{row}, autoencoder"] = tally(wanted, round_trip(folder, drawn))
    return results


def table(results: dict[str, dict[str, float | None]]) -> str:
    """The results as a Markdown table."""
    lines = ["| captions | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for row, shares in results.items():
        cells = ["" if shares[column] is None else f"{shares[column]:.3f}" for column in COLUMNS]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command ``python -m workers.builtin.score``."""
    from workers.builtin import MODEL_FOLDER
    from workers.builtin.pipeline import painter

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--count", type=int, default=200, help="pictures a row")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--languages", nargs="*", default=["en", "fa"])
    parser.add_argument("--no-ceilings", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    paint = painter(chosen.model, chosen.steps, chosen.guidance)
    results = measure(paint, chosen.count, chosen.rows, chosen.languages)
    if not chosen.no_ceilings:
        results |= ceilings(chosen.model, chosen.count)
    print(table(results))
    if chosen.json:
        settings: dict[str, Any] = {"count": chosen.count, "steps": chosen.steps, "guidance_scale": chosen.guidance}
        chosen.json.write_text(json.dumps({**settings, "rows": results}, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
