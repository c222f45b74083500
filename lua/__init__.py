"""Loads the Lua scripts and pastes their includes."""

import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)


class IncludeError(Exception):
    """An include is missing, or includes itself."""


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(entry.name[:-4] for entry in files(__name__).iterdir() if entry.name.endswith(".lua"))


@cache
def source(name: str) -> str:
    """The text of script `name`, every include pasted once, where it is first asked for."""
    return _expand(_read(f"{name}.lua"), [], set())


def _expand(text: str, path: list[str], pasted: set[str]) -> str:
    def paste(line: re.Match[str]) -> str:
        return "\n".join(part for part in map(include, line[1].split(", ")) if part)

    def include(name: str) -> str:
        if name in path:
            raise IncludeError(f"include loop: {' -> '.join([*path, name])}")
        if name in pasted:
            return ""
        pasted.add(name)
        return _expand(_read(f"includes/{name}.lua"), [*path, name], pasted).rstrip()

    return _INCLUDE.sub(paste, text)


def _read(path: str) -> str:
    try:
        return files(__name__).joinpath(path).read_text("utf-8")
    except FileNotFoundError:
        raise IncludeError(f"there is no lua/{path}") from None
