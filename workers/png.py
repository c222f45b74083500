"""Finished pictures as PNG files that carry how they were made."""

import importlib.metadata
import io

import msgspec
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from workers.protocol import Generate


def encode_png(picture: Image.Image, request: Generate, image: int) -> bytes:
    """The picture as PNG. The same picture and parameters give the same bytes: no date, no host, no job id.

    `Software` names us; `parameters` is the text other tools read and write (prompt, negative prompt, then one line of
    settings); `kargah` is the same as JSON, in the words of `POST /v1/generations`.
    """
    seed = request.seed + image
    text = PngInfo()
    text.add_text("Software", f"Kargah {_version()}")
    text.add_itxt("parameters", _readable(request, seed, picture.size))
    text.add_itxt("kargah", _machine_readable(request, seed).decode())
    file = io.BytesIO()
    picture.save(file, "PNG", pnginfo=text)
    return file.getvalue()


def _readable(request: Generate, seed: int, size: tuple[int, int]) -> str:
    """Source: the text that the web UI of AUTOMATIC1111 writes, which most viewers of such pictures understand."""
    lines = [request.prompt]
    if request.negative_prompt:
        lines.append(f"Negative prompt: {request.negative_prompt}")
    lines.append(
        f"Steps: {request.steps}, CFG scale: {request.guidance_scale:g}, Seed: {seed},"
        f" Size: {size[0]}x{size[1]}, Model: {request.model}"
    )
    return "\n".join(lines)


def _machine_readable(request: Generate, seed: int) -> bytes:
    return msgspec.json.encode(
        {
            "version": _version(),
            "model": request.model,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "width": request.width,
            "height": request.height,
            "steps": request.steps,
            "guidance_scale": request.guidance_scale,
            "seed": seed,
        }
    )


def _version() -> str:
    try:
        return importlib.metadata.version("kargah")
    except importlib.metadata.PackageNotFoundError:
        return "from a source tree"
