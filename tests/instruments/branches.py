"""Counters at every branch of the scripts: which `then`, `else`, loop body and function was ever run.

A branch is named by its file, its line and its kind.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import lua

COUNTS = "kargah-lua-branches"
"""The hash, on the server under test, that the counters are written to."""

_TOKEN = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|[A-Za-z_]\w*|\n|[^\s]")
_RUN = f"""
local function run(...)
    __hit = {{}}
    local __fine, __reply = pcall(run_bare, ...)
    for name, times in pairs(__hit) do
        redis.call('HINCRBY', '{COUNTS}', name, times)
    end
    if not __fine then error(__reply, 0) end
    return __reply
end
"""


class Branch(NamedTuple):
    """A place where the text may go on or not."""

    path: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}"


def branches() -> set[str]:
    """The names of all branches of all scripts and includes."""
    found = set()
    for name in lua.names():
        found |= {str(branch) for path in paths(name) for branch, _ in places(path, lua._read(path))}
    return found


def paths(name: str) -> set[str]:
    """The files a script is pasted from."""
    found, todo = set(), [f"{name}.lua"]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            for line in lua._INCLUDE.findall(lua._read(path)):
                todo += [f"includes/{include}.lua" for include in line.split(", ")]
    return found


def places(path: str, text: str) -> Iterator[tuple[Branch, int]]:
    """Each branch of a file, and after which character it begins."""
    line, in_parameters, seen = 1, False, set[Branch]()
    if not path.startswith("includes/"):
        yield Branch(path, 1, "script"), -1
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word == "\n":
            line += 1
        elif word == "function":
            in_parameters = True
        elif word in ("then", "else", "do", "repeat") or (in_parameters and word == ")"):
            kind = "function" if in_parameters else "loop" if word in ("do", "repeat") else word
            in_parameters = False
            branch = Branch(path, line, kind)
            while branch in seen:
                branch = branch._replace(kind=branch.kind + "'")
            seen.add(branch)
            yield branch, token.end()


def counted(text: str) -> str:
    """A library's text, made with `counting`, that writes which branches it takes."""
    run = lua._RUN.replace("function run(", "function run_bare(") + _RUN
    return "local __hit = {}\n" + text.replace(lua._RUN, run)


def counting(path: str) -> str:
    """A file of `lua/` with its counters; these are written, whatever the script does."""
    text = lua._read(path).replace(" flags=no-writes", "", 1)
    return _counting(path, text).replace(lua._KEYS, f"{lua._KEYS}\n__hit['{Branch(path, 1, 'script')}'] = 1", 1)


def read_counts(client: Any) -> dict[str, int]:
    """Branch → how often it was taken since `forget_counts`."""
    return {name.decode(): int(times) for name, times in client.hgetall(COUNTS).items()}


def _counting(path: str, text: str) -> str:
    parts, done = [], 0
    for branch, end in places(path, text):
        if end >= 0:
            counter = f"__hit['{branch}']"
            parts += [text[done:end], f" {counter} = ({counter} or 0) + 1; "]
            done = end
    return "".join([*parts, text[done:]])


@cache
def library() -> lua.Library:
    """The scripts, counting."""
    return lua.named(counted(lua.paste(lua.names(), counting)))


def counting_instead(monkeypatch: Any) -> None:
    """For the rest of a test, every script that is run counts its branches."""
    monkeypatch.setattr(lua, "library", library)
