"""What a queue holds: every key and value, comparable before and after a call, and between two queues."""

import re
from typing import Any

from tests import record

Dump = dict[str, Any]

_FORGETFUL = ("answer:",)
"""Keys that only remember answers."""
_MOMENT = re.compile(r"\b1\d{12}(?:-\d+)?\b| object at 0x[0-9a-f]+|sleep_ms=\d+|(?:wait|run)_ms': \d+|waiting_ms=\d+")


async def dump(client: Any, prefix: str, *, with_answers: bool = False) -> Dump:
    """All keys under `prefix`, without it, with their values; when a key expires is left out.

    Of the counters only what does not tell the time.
    """
    found: Dump = {}
    async for key in client.scan_iter(match=f"{prefix}*", count=1000):
        name = key.decode().removeprefix(prefix)
        if with_answers or not name.startswith(_FORGETFUL):
            value = await _value(client, key, name)
            if value is not None:
                found[name] = value
    _leave_out_times(found)
    return dict(sorted(found.items()))


def _leave_out_times(found: Dump) -> None:
    """What tells the time: sums of milliseconds, and in which minute they were counted."""
    for name in [name for name in found if name.startswith("metrics:") or name == "totals:before"]:
        del found[name]
    for name in ("minute", "wait_ms", "run_ms", "event_ms", "event_number"):
        found.get("meta", {}).pop(name, None)


def timeless(value: Any) -> str:
    """`value` as text with every instant and event id replaced by the same word."""
    return _MOMENT.sub("T", repr(value))


def without(found: Dump, *names: str) -> Dump:
    """A dump without some fields (`meta.looked_at`) or scores (`active`)."""
    changed = dict(found)
    for name in names:
        key, _, field = name.partition(".")
        value = changed.get(key)
        if isinstance(value, dict):
            changed[key] = {each: kept for each, kept in value.items() if each != field}
        elif isinstance(value, list):
            changed[key] = sorted(member for member, _ in value)
    return changed


async def _value(client: Any, key: bytes, name: str) -> Any:
    kind = (await client.type(key)).decode()
    match kind:
        case "string":
            value = await client.get(key)
            if value is None:  # it has ended since it was found
                return None
            if name == "meta":
                return record.unpack_meta(value)
            return _record(value) if name.startswith("state:") else _text(value)
        case "hash":
            fields = await client.hgetall(key)
            return {_text(name): _text(value) for name, value in sorted(fields.items())}
        case "zset":
            members = await client.zrange(key, 0, -1, withscores=True)
            return [(_text(member), int(score)) for member, score in members]
        case "list":
            return [_text(entry) for entry in await client.lrange(key, 0, -1)]
        case "stream":
            entries = await client.xrange(key)
            groups = [(_text(group["name"]), group["pending"]) for group in await client.xinfo_groups(key)]
            return [
                (_text(entry), {_text(k): _text(v) for k, v in fields.items()}) for entry, fields in entries
            ], groups
        case "none":  # gone since it was found
            return None
        case _:
            raise AssertionError(f"{key!r} is a {kind}")


def _record(packed: bytes) -> dict[str, str]:
    """As texts; lines are divided by a blank, since after a written-out `\\n` a number does not look like one."""
    return {name: str(value).replace("\n", " ") for name, value in sorted(record.unpack(packed).items())}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
