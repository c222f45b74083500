"""Loads the Lua scripts and pastes their includes."""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from textwrap import fill

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_DECLARATION = re.compile(r"^local (?P<function>function )?(?P<names>[\w, ]+)(?=[(= ])", re.MULTILINE)
_WORD = re.compile(r"\w+")

WIDTH = 120


class IncludeError(Exception):
    """An include is missing, or includes itself."""


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(entry.name[:-4] for entry in files(__name__).iterdir() if entry.name.endswith(".lua"))


@cache
def source(name: str) -> str:
    """The text of script `name`, before it every include that it needs, pasted once and after those it needs itself.

    An include is a block of its own, and shares only the names that others use: Lua allows 200 locals at once.
    """
    return paste(name, _read)


def paste(name: str, read: Callable[[str], str]) -> str:
    """`source` of files as `read` reads them."""
    script = read(f"{name}.lua")
    pasted: dict[str, str] = {}
    _collect(script, [], pasted, read)
    blocks = {include: _without_includes(text).strip() for include, text in pasted.items()}
    body = _without_includes(script)
    used = {include: set(_WORD.findall(text)) for include, text in blocks.items()} | {"": set(_WORD.findall(body))}
    shared = [
        _share(text, set().union(*(words for other, words in used.items() if other != include)))
        for include, text in blocks.items()
    ]
    shebang, _, rest = body.partition("\n")
    comment = re.match(r"(?:--.*\n|\n)*", rest)
    end = comment.end() if comment else 0
    return "\n".join([shebang, rest[:end].rstrip("\n"), *shared, rest[end:]])


def _collect(text: str, path: list[str], pasted: dict[str, str], read: Callable[[str], str]) -> None:
    for line in _INCLUDE.findall(text):
        for name in line.split(", "):
            if name in path:
                raise IncludeError(f"include loop: {' -> '.join([*path, name])}")
            if name not in pasted:
                include = read(f"includes/{name}.lua")
                _collect(include, [*path, name], pasted, read)
                pasted[name] = include


def _without_includes(text: str) -> str:
    return _INCLUDE.sub("", text)


def _share(text: str, wanted: set[str]) -> str:
    """An include as a block; the names that others want are declared before it."""
    shared: list[str] = []

    def declare(line: re.Match[str]) -> str:
        names = [name.strip() for name in line["names"].split(",")]
        if wanted.isdisjoint(names):
            return line[0]
        shared.extend(names)
        return f"{line['function'] or ''}{line['names']}"

    block = f"do\n{_DECLARATION.sub(declare, text)}\nend"
    return f"{fill('local ' + ', '.join(shared), WIDTH, subsequent_indent='    ')}\n{block}" if shared else block


def _read(path: str) -> str:
    try:
        return files(__name__).joinpath(path).read_text("utf-8")
    except FileNotFoundError:
        raise IncludeError(f"there is no lua/{path}") from None
