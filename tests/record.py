"""The packed record of a job, as lua/includes/job_record.lua writes it, and the counters, as count_up.lua does."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

INCLUDES = Path(__file__).parents[1] / "lua" / "includes"
INCLUDE = INCLUDES / "job_record.lua"
BORN = "created_at", "added", "token"
"""What the text `born` has: six bytes; six and four of an event id; a text that ends with a zero."""
FLAGS = (0, 2, 4)
"""What `flags` must have for a part to be there; 1 is `plain`."""


class Part(NamedTuple):
    """A packed part: what it holds, in its order, and how."""

    names: tuple[str, ...]
    format: str

    def sizes(self) -> list[int]:
        """Bytes of each field; 0: a text that ends with a zero; less: bytes of the length before a text."""
        parts = re.findall(r"I(\d)c0|([IBs])(\d*)", self.format)
        return [-int(length) if length else int(size or 1) if kind in "IB" else 0 for length, kind, size in parts]


@cache
def parts() -> tuple[Part, ...]:
    """Those of every record, of an attempt, and of an end."""
    text = INCLUDE.read_text()
    formats = re.search(r"local HEAD, ATTEMPT, END = '(.+)', '(.+)', '(.+)'", text)
    assert formats
    names = {part: of for of, part in re.findall(r"local ([\w,\s]+),\s+rest = struct.unpack\((\w+)", text)}
    orders = [tuple(re.findall(r"\w+", names[part])) for part in ("HEAD", "ATTEMPT", "END")]
    return tuple(map(Part, orders, formats.groups()))


@cache
def states() -> list[str]:
    """In the order of their codes, which begin with 1."""
    found = re.search(r"local STATE_OF = {(.+)}", INCLUDE.read_text())
    assert found
    return re.findall(r"'([\w-]+)'", found[1])


@cache
def fields() -> tuple[str, ...]:
    """All names, as a job has them."""
    rare = INCLUDE.read_text().partition("local RARE = {")[2].partition("}")[0]
    return "state", "plain", *_common(), *re.findall(r"'(\w+)'", rare)


def unpack(packed: bytes) -> dict[str, Any]:
    """Name → value of what a record has."""
    values: dict[str, Any] = {}
    for part, flags in zip(parts(), FLAGS, strict=True):
        if values.get("flags", 0) < flags:
            break
        for name, size in zip(part.names, part.sizes(), strict=True):
            if size > 0:
                values[name], packed = int.from_bytes(packed[:size], "little"), packed[size:]
            elif size:
                end = int.from_bytes(packed[:-size], "little") - size
                values[name], packed = packed[-size:end], packed[end:]
            else:
                text, _, packed = packed.partition(b"\0")
                values[name] = text.decode()
    born = values.pop("born")
    created_at, ms, number = (int.from_bytes(part, "little") for part in (born[:6], born[6:12], born[12:16]))
    values |= dict(zip(BORN, (created_at, f"{ms}-{number}", born[16:-1]), strict=True))
    values = {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items() if value}
    values["state"] = states()[values.pop("code") - 1]
    if values.pop("flags", 0) % 2:
        values["plain"] = True
    return values | (msgspec.msgpack.decode(packed) if packed else {})


def pack(record: dict[str, Any]) -> bytes:
    """The opposite."""
    ms, number = map(int, record["added"].split("-"))
    numbers = ((record.get("created_at", 0), 6), (ms, 6), (number, 4))
    born = b"".join(value.to_bytes(size, "little") for value, size in numbers) + record["token"].encode() + b"\0"
    most = 3 if "finished_at" in record else 2 if "started" in record else 1
    flags = sum(FLAGS[:most]) + ("plain" in record)
    packed = b""
    for part in parts()[:most]:
        for name, size in zip(part.names, part.sizes(), strict=True):
            value = {"code": states().index(record["state"]) + 1, "flags": flags}.get(name, record.get(name))
            text = born if name == "born" else str(value or "").encode()
            if size > 0:
                packed += int(value or 0).to_bytes(size, "little")
            else:
                packed += len(text).to_bytes(-size, "little") + text if size else text + b"\0"
    rare = {name: value for name, value in record.items() if name not in ("state", "plain", *_common())}
    return packed + (msgspec.msgpack.encode(rare) if rare else b"")


@cache
def counters() -> tuple[list[str], str]:
    """The kinds of what is counted, in their order, and how they are packed."""
    text = (INCLUDES / "count_up.lua").read_text()
    kinds, packing = re.search(r"local KINDS = {(.+)}", text), re.search(r"local FORMAT = '(.+?)'", text)
    assert kinds
    assert packing
    return re.findall(r"'(\w+)'", kinds[1]), packing[1]


def unpack_counters(packed: bytes | None) -> dict[str, int]:
    """Kind → number."""
    found, (kinds, packing) = {}, counters()
    for kind, size in zip(kinds, map(int, re.findall(r"I(\d)", packing)), strict=True):
        if packed:
            found[kind], packed = int.from_bytes(packed[:size], "little"), packed[size:]
    return found


def _common() -> list[str]:
    names = [name for part in parts() for name in part.names if name not in ("code", "flags", "born")]
    return [*BORN, *names]
