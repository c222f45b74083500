"""The packed records of jobs and queues, as lua/includes/job_record.lua and read_meta.lua write them."""

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
def meta_part() -> Part:
    """What the record of every queue has, as lua/includes/read_meta.lua packs it."""
    text = (INCLUDES / "read_meta.lua").read_text()
    names, packing = re.search(r"local (major, [\w,\s]+), rest =", text), re.search(r"local HEAD = '(.+)'", text)
    assert names
    assert packing
    return Part(tuple(re.findall(r"\w+", names[1])), packing[1])


@cache
def counters() -> tuple[list[str], str]:
    """The kinds of what is counted, in their order, and how they are packed."""
    text = (INCLUDES / "count_up.lua").read_text()
    kinds, packing = re.search(r"local KINDS = {(.+)}", text), re.search(r"local FORMAT = '(.+?)'", text)
    assert kinds
    assert packing
    return re.findall(r"'(\w+)'", kinds[1]), packing[1]


def unpack_meta(packed: bytes | None) -> dict[str, str]:
    """Name → text of what the record of a queue has; of its numbers those that are not 0."""
    if packed is None:
        return {}
    values: dict[str, Any] = {}
    part = meta_part()
    for name, size in zip(part.names, part.sizes(), strict=True):
        values[name], packed = int.from_bytes(packed[:size], "little"), packed[size:]
    layout = f"{values.pop('major')}.{values.pop('minor')}"
    values = {name: str(value) for name, value in values.items() if value}
    return {"layout": layout} | values | (msgspec.msgpack.decode(packed) if packed else {})


def pack_meta(meta: dict[str, str]) -> bytes:
    """The opposite."""
    part = meta_part()
    texts = dict(meta)
    texts["major"], texts["minor"] = texts.pop("layout", layout()).split(".")
    numbers = [int(texts.pop(name, 0)) for name in part.names]
    packed = b"".join(number.to_bytes(size, "little") for number, size in zip(numbers, part.sizes(), strict=True))
    return packed + (msgspec.msgpack.encode(texts) if texts else b"")


async def change_meta(client: Any, key: str, **changed: Any) -> None:
    """Change it by hand; None takes something away."""
    await client.set(key, pack_meta(changed_meta(await client.get(key), **changed)))


def changed_meta(packed: bytes | None, **changed: Any) -> dict[str, str]:
    """The same without a server."""
    merged = unpack_meta(packed) | changed
    return {name: str(value) for name, value in merged.items() if value is not None}


@cache
def layout() -> str:
    """Of the data, as this version writes them."""
    found = re.search(r"^local LAYOUT = '(.+)'$", (INCLUDES / "read_meta.lua").read_text(), re.MULTILINE)
    assert found
    return found[1]


def _common() -> list[str]:
    names = [name for part in parts() for name in part.names if name not in ("code", "flags", "born")]
    return [*BORN, *names]
