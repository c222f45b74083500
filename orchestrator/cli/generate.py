"""`kargah generate`: ask for a picture, watch it appear, save it."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import Url, complain, connect, err, out
from orchestrator.cli.progress import Follower
from orchestrator.client import Client, GenerationView
from orchestrator.errors import InvalidOption
from orchestrator.generation import GenerationRequest
from orchestrator.job import JobState

EXIT_FAILED = 1
EXIT_CANCELED = 130


def generate(
    prompt: Annotated[str, typer.Argument(help="What the picture shows.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to save it; `-` is stdout. (default: named after the prompt)"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same picture. (default: by chance)")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps. (default: the model's)")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="How closely to follow the prompt. (default: the model's)")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="WxH", help="Width and height in pixels, as 512x512 or 512.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width in pixels, a multiple of 8. (default: the model's)")] = None,
    height: Annotated[
        int | None, typer.Option(help="Height in pixels, a multiple of 8. (default: the model's)")
    ] = None,
    negative: Annotated[
        str,
        typer.Option("--negative", "--negative-prompt", help="What the picture should not show.", show_default=False),
    ] = "",
    model: Annotated[str | None, typer.Option(help="One of `kargah models`. (default: the service's first)")] = None,
    num_images: Annotated[
        int, typer.Option("--num-images", "-n", min=1, max=4, help="How many, with seeds one after the other.")
    ] = 1,
    priority: Annotated[int | None, typer.Option(help="Lower is sooner. (default: the service's)")] = None,
    url: Url = "",
) -> None:
    """Make a picture of PROMPT, show its progress, and save it as PNG.

    Ctrl-C cancels the generation. The names of the saved files go to stdout, everything else to stderr.
    """
    both = _parse_size(size)
    request = GenerationRequest(
        prompt=prompt,
        negative_prompt=negative,
        model=model,
        width=width or both[0],
        height=height or both[1],
        steps=steps,
        guidance_scale=guidance,
        seed=seed,
        num_images=num_images,
        priority=priority,
    )
    if output == Path("-") and num_images > 1:
        raise InvalidOption("--output", "stdout takes one picture; save several to files")
    with connect(url) as client:
        generation = client.submit(request)
        finished = Follower(client, generation).run()
        if finished.status is JobState.COMPLETED:
            _save(client, finished, output)
    if finished.status is JobState.FAILED:
        complain(f"the generation failed: {_reason(finished)}", f"Try again: kargah jobs retry {finished.id}")
        raise typer.Exit(EXIT_FAILED)
    if finished.status is JobState.CANCELED:
        raise typer.Exit(EXIT_CANCELED)


def _parse_size(size: str | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    found = re.fullmatch(r"(\d{2,4})(?:[xX×](\d{2,4}))?", size)
    if found is None:
        raise InvalidOption("--size", "must look like 512x512 or 512")
    width = int(found[1])
    return width, int(found[2] or width)


def _reason(generation: GenerationView) -> str:
    if generation.error is None:
        return generation.reason or "nobody knows why"
    return f"{generation.error.message} ({generation.error.kind})"


def _save(client: Client, generation: GenerationView, output: Path | None) -> None:
    if output == Path("-"):
        sys.stdout.buffer.write(client.download(generation.images[0]))
        return
    for picture in generation.images:
        path = output or Path(f"{_slug(generation.input.prompt)}-{picture.seed}.png")
        if output is not None and len(generation.images) > 1:
            path = output.with_stem(f"{output.stem}-{picture.index + 1}")
        try:
            path.write_bytes(client.download(picture))
        except OSError as problem:
            raise InvalidOption("--output", f"cannot write {path}: {problem.strerror}") from problem
        err.print(f"{picture.width}×{picture.height}, seed {picture.seed}, {picture.bytes:,} bytes", style="dim")
        out.print(str(path), markup=False)


def _slug(prompt: str) -> str:
    """A file name from the prompt's first words, in whatever script they are."""
    words = re.findall(r"\w+", prompt.casefold())[:8]
    return "-".join(words)[:60] or "picture"
