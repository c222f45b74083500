"""The packed record of a job, as lua/includes/job_record.lua writes it."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

INCLUDE = Path(__file__).parents[1] / "lua" / "includes" / "job_record.lua"
ARRAY_16 = b"\xdc"


@cache
def common_fields() -> tuple[str, ...]:
    """What every record has a place for, in its order."""
    order = re.search(r"local (state, [\w,\s]+),\s+rare = cmsgpack", INCLUDE.read_text())
    assert order
    return tuple(re.findall(r"\w+", order[1]))


@cache
def fields() -> tuple[str, ...]:
    """All names."""
    rare = INCLUDE.read_text().partition("local RARE = {")[2].partition("}")[0]
    return common_fields() + tuple(re.findall(r"'(\w+)'", rare))


def unpack(packed: bytes) -> dict[str, Any]:
    """Name → value of what a record has."""
    count = len(common_fields()) + 1
    *values, rare = msgspec.msgpack.decode(ARRAY_16 + count.to_bytes(2, "big") + packed)
    known = dict(zip(common_fields(), values, strict=True)) | (rare or {})
    return {name: value for name, value in known.items() if value is not None}


def pack(record: dict[str, Any]) -> bytes:
    """The opposite."""
    values = [record.get(name) for name in common_fields()]
    rare = {name: value for name, value in record.items() if name not in common_fields()}
    return b"".join(msgspec.msgpack.encode(value) for value in [*values, rare or None])
