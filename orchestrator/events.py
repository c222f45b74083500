"""Events: what happened to a job or a queue, told once under one id to all who watch."""

from typing import Any, Self

import msgspec

TERMINAL = frozenset({"completed", "failed", "canceled"})
"""Types of the last event of a run."""

_COMMON = ("type", "job", "at", "run", "attempt", "seq")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `lua/README.md` lists the types and the `fields` of each.

    id: `<ms>-<n>`, unique and ordered in its queue; the same on every channel.
    at: ms since the epoch. job: None for events of the queue.
    run, attempt, seq: of job events; seq counts all events of a job, over all runs, without gaps.
    """

    id: str
    type: str
    at: int
    job: str | None = None
    run: int = 0
    attempt: int = 0
    seq: int = 0
    fields: dict[str, Any] = {}

    @classmethod
    def decode(cls, event_id: str, text: bytes | str) -> Self:
        """Read the JSON text that travels beside the id.

        One that cannot be read becomes an event `unreadable` of the queue: it must not hide those after it.
        """
        try:
            flat: dict[str, Any] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return cls(id=event_id, type="unreadable", at=id_key(event_id)[0])
        common = {name: flat.pop(name) for name in _COMMON if name in flat}
        return cls(id=event_id, fields=flat, **common)

    @classmethod
    def decode_entry(cls, entry: bytes) -> Self:
        """Read `<id> <JSON>`, as in the history."""
        event_id, _, text = entry.partition(b" ")
        return cls.decode(event_id.decode(), text)

    @classmethod
    def decode_together(cls, entry_id: bytes, lines: bytes) -> list[Self]:
        """Read an entry of the stream, or a message of the live channel: an event a line.

        Its id is that of the last, the others count up to it.
        """
        return [cls.decode(event_id, text) for event_id, text in events_of(entry_id, lines)]

    def flat(self) -> dict[str, Any]:
        """The event as one flat object, without its id."""
        whole: dict[str, Any] = {"type": self.type}
        if self.job is not None:
            whole |= {"job": self.job}
        whole |= {"at": self.at}
        if self.job is not None and self.seq:
            whole |= {"run": self.run, "attempt": self.attempt, "seq": self.seq}
        return whole | self.fields

    def encode(self) -> bytes:
        """The event as JSON, without its id."""
        return msgspec.json.encode(self.flat())


def events_of(entry_id: bytes, lines: bytes) -> list[tuple[str, bytes]]:
    """(id, JSON) of each event of an entry of the stream."""
    if b"\n" not in lines:
        return [(entry_id.decode(), lines)]
    ms, last = id_key(entry_id.decode())
    texts = lines.split(b"\n")
    return [(f"{ms}-{number}", text) for number, text in enumerate(texts, last - len(texts) + 1)]


def id_key(event_id: str) -> tuple[int, int]:
    """An order for event ids. Raises ValueError for what is no id."""
    ms, dash, n = event_id.partition("-")
    if not dash or not ms.isascii() or not n.isascii() or not ms.isdigit() or not n.isdigit():
        raise ValueError(f"{event_id!r} is no event id")
    key = int(ms), int(n)
    if max(key) >= 2**64:
        raise ValueError(f"{event_id!r} is no event id")
    return key
