"""Makes one library of functions of the Lua scripts and their includes, as the server loads it.

Problem: a script that is evaluated makes all its functions anew at each call, which took a third of a lone call's time.
Choice: a library (`FUNCTION LOAD`), whose functions are made once. Price: it stays on the server, so its name and
theirs carry a digest of what it is made of, and versions of Kargah live side by side.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files

PREFIX = "kargah_"
"""Of the names of all libraries."""
MOST_LOCALS = 150

_INCLUDE = re.compile(r"^-- include: (.+)$\n?", re.MULTILINE)
_COMMENT = re.compile(r"^ *--(?! include: )[^\n]*\n", re.MULTILINE)
_DECLARATION = re.compile(r"^local (?P<function>function )?(?P<names>[\w, ]+?)(?=\(| =|$)", re.MULTILINE)
_OF_A_CALL = re.compile(r"^local (?P<names>[a-z_]\w*(?:, [a-z_]\w*)*) = (?P<value>.*)$", re.MULTILINE)
_NUMBERS = re.compile(r"^local (?P<names>[A-Z_]+(?:, [A-Z_]+)*) = (?P<values>\d+(?:, \d+)*)(?: --.*)?$\n", re.MULTILINE)
_TOKEN = re.compile(r"""--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?<![.:\w])[A-Za-z_]\w*""")
_FLAGS = re.compile(r"#!lua(?: flags=(\S+))?$", re.MULTILINE)
_ENDS = "\nAT_END."
_KEYS = "local _, _ = KEYS[1], KEYS[2]"
_FROM_THE_SERVER = "redis, cjson, cmsgpack, struct, string, table, math, tonumber, ipairs, pairs, next, unpack"

_BEGIN = f"""\
local register = redis.register_function
local function from_the_server() -- which gives a library these only when a function of it is called
    return {_FROM_THE_SERVER}
end
local {_FROM_THE_SERVER}
local S, BEGIN, AT_END, ALL_ENDED = {{}}, {{}}, {{}}, false
"""
_RUN = f"""\
local function run(script, begin, at_end, KEYS, ARGV)
    if not redis then
        {_FROM_THE_SERVER} = from_the_server()
    end
    if not ALL_ENDED then -- this is the first call, or the one before failed
        for name in pairs(AT_END) do
            BEGIN[name](KEYS)
        end
    end
    ALL_ENDED = false
    for i = 1, #begin do
        begin[i](KEYS)
    end
    local reply = script(KEYS, ARGV)
    for i = 1, #at_end do
        at_end[i]()
    end
    ALL_ENDED = true
    return reply
end
"""
_INCLUDED = """\
do -- includes/{name}.lua
{private}{text}
{of_a_call}end
"""
_OWN_OF_A_CALL = """\
BEGIN.{name} = function(KEYS)
{lines}
end
"""
_SCRIPT = """\
do -- {name}.lua
local function script(KEYS, ARGV)
{text}
end
local begin, at_end = {{ {begin} }}, {{ {at_end} }}
register({{ function_name = 'LIBRARY_{name}', flags = {{ {flags} }}, callback = function(KEYS, ARGV)
    return run(script, begin, at_end, KEYS, ARGV)
end }})
end
"""


class IncludeError(Exception):
    """An include is missing, or includes itself."""


class Library:
    """What `FUNCTION LOAD` takes, and what it is called.

    Its text is made when somebody asks for it, which takes a tenth of a second: only whoever finds that a server does
    not have it yet.
    """

    def __init__(self, name: str, make: Callable[[], str]) -> None:
        self.name = name
        self._make = make

    @cached_property
    def text(self) -> str:
        """Of which it calls itself LIBRARY."""
        return f"#!lua name={self.name}\n{self._make().replace('LIBRARY', self.name)}"

    def function(self, name: str) -> str:
        """What the server calls script `name`."""
        return f"{self.name}_{name}"


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(entry.name[:-4] for entry in files(__name__).iterdir() if entry.name.endswith(".lua"))


@cache
def library(*scripts: str) -> Library:
    """All scripts as one library, or some of them.

    What includes share ends with the number of its include, and is a local where it is used most, else a field of one
    table: Lua allows 200 locals. What they call a number is written as that number. What an include declares at its top
    under a name in lower case is made anew at each call of a script that includes it. One that puts a function into
    `AT_END`, under its own name, has that called when the script has its reply, however it came to that; it leaves them
    as they were at first.
    """
    return Library(_name(_sources(), *scripts), lambda: paste(scripts or names(), _read))


def named(text: str) -> Library:
    """A library of that text."""
    return Library(_name(text), lambda: text)


def _name(*parts: str) -> str:
    return PREFIX + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


@cache
def _sources() -> str:
    """All that a library is made of, and how: reading it is much faster than making one."""
    folders = files(__name__), files(__name__).joinpath("includes")
    found = (entry for folder in folders for entry in folder.iterdir() if entry.name.endswith((".lua", "__init__.py")))
    return "\0".join(f"{entry.name}\0{entry.read_text('utf-8')}" for entry in sorted(found, key=lambda each: each.name))


def paste(scripts: Sequence[str], read: Callable[[str], str]) -> str:
    """The text of a library of those scripts, of files as `read` reads them."""
    includes: dict[str, str] = {}
    texts = {name: _COMMENT.sub("", read(f"{name}.lua")) for name in scripts}
    for text in texts.values():
        _collect(text, [], includes, read)
    seen = _seen(includes | texts)
    literals = {(name, word): value for name, text in includes.items() for word, value in _literals(text).items()}
    shared = _shared(includes, includes | texts, seen, literals)
    known = shared | literals
    local_names = ", ".join(word for word in shared.values() if not word.startswith("S."))

    def share(name: str, text: str) -> str:
        foreign = {word: field for (of, word), field in known.items() if of in seen[name]}
        if twice := foreign.keys() & set(_own_names(texts.get(name) or includes[name])):
            raise IncludeError(f"{name} declares what it includes: {', '.join(sorted(twice))}")
        return _share(text, foreign | {word: field for (of, word), field in known.items() if of == name})

    parts = [_BEGIN, f"local {local_names}\n" if local_names else ""]
    for name, text in includes.items():
        private = [word for word in _of_a_call(text) if (name, word) not in shared]
        lines = [f"{line['names']} = {line['value']}" for line in _OF_A_CALL.finditer(text)]
        parts.append(
            _INCLUDED.format(
                name=name,
                private=f"local {', '.join(private)}\n" if private else "",
                text=share(name, _INCLUDE.sub("", _NUMBERS.sub("", _OF_A_CALL.sub("", text))).strip()),
                of_a_call=_OWN_OF_A_CALL.format(name=name, lines=share(name, "\n".join(lines))) if lines else "",
            )
        )
    parts.append(_RUN)
    for name, text in texts.items():
        _, _, body = _INCLUDE.sub("", text).partition(f"\n{_KEYS}\n")
        flags = ", ".join(f"'{flag}'" for flag in (_FLAGS.findall(text) or [""])[0].split(",") if flag)
        parts.append(
            _SCRIPT.format(
                name=name,
                text=share(name, body.rstrip("\n")),
                flags=flags,
                begin=", ".join(
                    f"BEGIN.{each}"
                    for each in includes
                    if each in seen[name] and _of_a_call(includes[each]) and _ENDS not in includes[each]
                ),
                at_end=", ".join(
                    f"AT_END.{each}" for each in reversed(includes) if each in seen[name] and _ENDS in includes[each]
                ),
            )
        )
    return "".join(parts)


def _seen(texts: dict[str, str]) -> dict[str, set[str]]:
    """What each file includes, directly or not. Each comes after what it includes."""
    seen: dict[str, set[str]] = {}
    for name, text in texts.items():
        direct = _included(text)
        seen[name] = set(direct).union(*(seen[each] for each in direct))
    return seen


def _shared(
    includes: dict[str, str], texts: dict[str, str], seen: dict[str, set[str]], literals: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """(Include, what it declares) → the name in the library of what others use, too, and is no literal.

    The most used first.
    """
    numbers = {include: f"{number:02}" for number, include in enumerate(includes)}
    used = {name: Counter(_TOKEN.findall(text)) for name, text in texts.items()}
    uses = {
        (include, word): sum(used[other][word] for other in seen if include in seen[other])
        for include, text in includes.items()
        for word in _own_names(text)
        if (include, word) not in literals
    }
    order = sorted((each for each in uses if uses[each]), key=lambda each: -uses[each])
    return {
        (include, word): f"{'' if place < MOST_LOCALS else 'S.'}{word}_{numbers[include]}"
        for place, (include, word) in enumerate(order)
    }


def _collect(text: str, path: list[str], includes: dict[str, str], read: Callable[[str], str]) -> None:
    """Every include that the text needs, those first that others need."""
    for name in _included(text):
        if name in path:
            raise IncludeError(f"include loop: {' -> '.join([*path, name])}")
        if name not in includes:
            include = _COMMENT.sub("", read(f"includes/{name}.lua"))
            _collect(include, [*path, name], includes, read)
            includes[name] = include


def _included(text: str) -> list[str]:
    return [name for line in _INCLUDE.findall(text) for name in line.split(", ")]


def _literals(text: str) -> dict[str, str]:
    """What an include calls a number."""
    return {
        name: value
        for line in _NUMBERS.finditer(text)
        for name, value in zip(line["names"].split(", "), line["values"].split(", "), strict=True)
    }


def _own_names(text: str) -> list[str]:
    return [name.strip() for line in _DECLARATION.finditer(text) for name in line["names"].split(",")]


def _of_a_call(text: str) -> list[str]:
    return [name for line in _OF_A_CALL.finditer(text) for name in line["names"].split(", ")]


def _share(text: str, shared: dict[str, str]) -> str:
    """The text with shared names as `shared` says."""

    def declare(line: re.Match[str]) -> str:
        names = [name.strip() for name in line["names"].split(",")]
        own = [name for name in names if name not in shared]
        if own == names:
            return line[0]
        before = f"local {', '.join(own)} " if own else ""
        return f"{before}{line['function'] or ''}{line['names']}"

    def refer(token: re.Match[str]) -> str:
        return shared.get(token[0], token[0])

    return _TOKEN.sub(refer, _DECLARATION.sub(declare, text))


def _read(path: str) -> str:
    try:
        return files(__name__).joinpath(path).read_text("utf-8")
    except FileNotFoundError:
        raise IncludeError(f"there is no lua/{path}") from None
