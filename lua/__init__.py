"""Loads the Lua scripts and pastes their includes."""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (.+)$\n?", re.MULTILINE)
_DECLARATION = re.compile(r"^local (?P<function>function )?(?P<names>[\w, ]+?)(?=\(| =|$)", re.MULTILINE)
_TOKEN = re.compile(r"""--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?<![.:\w])[A-Za-z_]\w*""")

_KEYS = "local _, _ = KEYS[1], KEYS[2]"
_READ_WHEN_USED = """\
setmetatable(S, { __index = function(shared, name)
    local number = string.sub(name, -2)
    local read = INCLUDES[number]
    if read then
        INCLUDES[number] = false
        read()
        return rawget(shared, name)
    end
end })"""
_AT_THE_END = """\
end)()
for _, finish in ipairs(AT_END) do
    finish()
end
return reply
"""


class IncludeError(Exception):
    """An include is missing, or includes itself."""


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(entry.name[:-4] for entry in files(__name__).iterdir() if entry.name.endswith(".lua"))


@cache
def source(name: str) -> str:
    """The text of script `name` with every include that it needs, pasted once.

    What includes share becomes fields of one table, and an include is read when one of its names is used first: Lua
    allows 200 locals and 60 upvalues, and makes all functions of a script anew at each call, of which most calls need
    few. A field's name ends with the number of its include. What includes put into `AT_END` is called when the script
    has its reply, however it came to that.
    """
    return paste(name, _read)


def paste(name: str, read: Callable[[str], str]) -> str:
    """`source` of files as `read` reads them."""
    script = read(f"{name}.lua")
    texts: dict[str, str] = {}
    _collect(script, [], texts, read)
    words = {include: _words(text) for include, text in texts.items()}
    body = _INCLUDE.sub("", script)
    used = _words(body)
    numbers = {include: f"{number:02}" for number, include in enumerate(texts)}
    shared = {
        own: f"{own}_{numbers[include]}"
        for include, text in texts.items()
        for own in _own_names(text)
        if own in used or any(own in others for other, others in words.items() if other != include)
    }
    first, _, rest = body.partition(f"\n{_KEYS}\n")
    pasted = [
        f"INCLUDES['{numbers[include]}'] = function()\n{_share(text, shared)}\nend" for include, text in texts.items()
    ]
    return "\n".join(
        [
            first.rstrip("\n"),
            "local S, INCLUDES, AT_END = {}, {}, {}",
            _READ_WHEN_USED,
            *pasted,
            _KEYS,
            "local reply = (function()",
            _share(rest, shared).rstrip("\n"),
            _AT_THE_END,
        ]
    )


def _collect(text: str, path: list[str], texts: dict[str, str], read: Callable[[str], str]) -> None:
    for line in _INCLUDE.findall(text):
        for name in line.split(", "):
            if name in path:
                raise IncludeError(f"include loop: {' -> '.join([*path, name])}")
            if name not in texts:
                include = read(f"includes/{name}.lua")
                _collect(include, [*path, name], texts, read)
                texts[name] = _INCLUDE.sub("", include).strip()


def _words(text: str) -> set[str]:
    return {token for token in _TOKEN.findall(text) if token[0] not in "-'\""}


def _own_names(text: str) -> list[str]:
    return [name.strip() for line in _DECLARATION.finditer(text) for name in line["names"].split(",")]


def _share(text: str, shared: dict[str, str]) -> str:
    """The text with shared names as fields of `S`, named as `shared` says."""

    def declare(line: re.Match[str]) -> str:
        names = [name.strip() for name in line["names"].split(",")]
        if all(name in shared for name in names):
            return f"{line['function'] or ''}{line['names']}"
        return line[0]

    def refer(token: re.Match[str]) -> str:
        return f"S.{shared[token[0]]}" if token[0] in shared else token[0]

    return _TOKEN.sub(refer, _DECLARATION.sub(declare, text))


def _read(path: str) -> str:
    try:
        return files(__name__).joinpath(path).read_text("utf-8")
    except FileNotFoundError:
        raise IncludeError(f"there is no lua/{path}") from None
