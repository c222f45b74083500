"""The packed record of a job, as lua/includes/job_record.lua writes it."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

INCLUDE = Path(__file__).parents[1] / "lua" / "includes" / "job_record.lua"


@cache
def common_fields() -> tuple[str, ...]:
    """What every record has a place for, in its order."""
    order = re.search(r"local (sequence, [\w,\s]+),\s+rest = struct", INCLUDE.read_text())
    assert order
    return tuple(re.findall(r"\w+", order[1]))


@cache
def fields() -> tuple[str, ...]:
    """All names."""
    rare = INCLUDE.read_text().partition("local RARE = {")[2].partition("}")[0]
    return common_fields() + tuple(re.findall(r"'(\w+)'", rare))


@cache
def common_format() -> str:
    """How that is packed."""
    found = re.search(r"local COMMON = '(.+)'", INCLUDE.read_text())
    assert found
    return found[1]


def _sizes() -> list[int]:
    """Bytes of each common field; 0: a text that ends with a zero; less: bytes of the length before a text."""
    parts = re.findall(r"I(\d)c0|([IBs])(\d*)", common_format())
    return [-int(length) if length else int(size or 1) if kind in "IB" else 0 for length, kind, size in parts]


def unpack(packed: bytes) -> dict[str, Any]:
    """Name → value of what a record has."""
    values: dict[str, Any] = {}
    for name, size in zip(common_fields(), _sizes(), strict=True):
        if size > 0:
            values[name], packed = int.from_bytes(packed[:size], "little"), packed[size:]
        elif size:
            end = int.from_bytes(packed[:-size], "little") - size
            values[name], packed = packed[-size:end].decode(), packed[end:]
        else:
            text, _, packed = packed.partition(b"\0")
            values[name] = text.decode()
    values = {name: value for name, value in values.items() if value}
    if "plain" in values:
        values["plain"] = True
    return values | (msgspec.msgpack.decode(packed) if packed else {})


def pack(record: dict[str, Any]) -> bytes:
    """The opposite."""
    parts = []
    for name, size in zip(common_fields(), _sizes(), strict=True):
        value = record.get(name)
        text = str(value or "").encode()
        if size > 0:
            parts.append(int(value or 0).to_bytes(size, "little"))
        else:
            parts.append(len(text).to_bytes(-size, "little") + text if size else text + b"\0")
    rare = {name: value for name, value in record.items() if name not in common_fields()}
    return b"".join(parts) + (msgspec.msgpack.encode(rare) if rare else b"")
