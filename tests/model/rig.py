"""A queue on a server and its model, side by side: every call is made to both and compared, then all keys are."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import redis

import lua
from orchestrator.errors import KargahError
from orchestrator.group import Group
from orchestrator.job import Job
from orchestrator.keys import Keys
from orchestrator.presence import WorkerInfo
from orchestrator.scripts import Claim, Claims, Scripts
from tests.instruments.branches import counted, counting
from tests.instruments.clock import EPOCH_MS, set_clock, with_set_clock
from tests.model.invariants import Invariants
from tests.model.job import ModelEvent
from tests.model.reference import Reference
from tests.model.snapshot import Found, Reader, comparable, expected

COPIES = 6
"""So many of the last calls may be sent again."""


class Sent(NamedTuple):
    """A call as it was sent."""

    name: str
    args: tuple[Any, ...]
    fields: dict[str, Any]


class _Scripts(Scripts):
    """The scripts with a set clock and counted branches, run without waiting: so a call costs little."""

    def __init__(self, client: Any, keys: Keys) -> None:
        super().__init__(client, keys)
        self.taken: Counter[str] = Counter()
        self._library = _library()
        if not client.function_list(self._library.name):
            client.function_load(self._library.text)

    async def _evaluate(self, name: str, args: Sequence[str | bytes | int], until: float) -> Any:
        self.taken[name] += 1
        return self.client.fcall(self._library.function(name), 2, self.keys.meta, self.keys.none, *args)


@cache
def _library() -> lua.Library:
    return lua.named(with_set_clock(counted(lua.paste(lua.names(), counting))))


class Rig:
    """One queue, one model. `transitions` counts the calls over all rigs."""

    made = 0
    transitions: Counter[str] = Counter()

    def __init__(self, url: str) -> None:
        Rig.made += 1
        self.client: Any = redis.Redis.from_url(url)
        self.keys = Keys(f"model{Rig.made}")
        self.scripts = _Scripts(self.client, self.keys)
        self.model = Reference(EPOCH_MS, self.keys.queue)
        self.sent: deque[Sent] = deque(maxlen=COPIES)
        self.sent_at = -1
        self._loop = asyncio.new_event_loop()
        self._reader = Reader(self.client, self.keys.prefix)
        self._invariants = Invariants()
        self._events = 0
        self._lives = dict(self.model.journal.lives)
        set_clock(self.client, self.keys.prefix, EPOCH_MS)

    def close(self) -> None:
        """Compare all histories whole once more, and leave nothing behind."""
        try:
            found = self._reader.read(tail=0)
            self._compare(comparable(found.keys, tail=0), expected(self.model, tail=0))
        finally:
            if keys := self.client.keys(f"{self.keys.prefix}*"):
                self.client.delete(*keys)
            self.client.close()
            self._loop.close()

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        """Make a call to both; returns the scripts' answer, or the class of the error they raised."""
        self.sent.append(Sent(name, args, fields))
        self.sent_at = self.model.now
        return self._call(self.sent[-1])

    def again(self, sent: Sent) -> Any:
        """Make a call that was made before, with the same arguments."""
        return self._call(sent)

    def move_clock(self, ms: int) -> None:
        """Let time pass, or set the clock back."""
        self.model.set_clock(self.model.now + ms)
        set_clock(self.client, self.keys.prefix, self.model.now)
        if ms < 0:
            self._invariants.forget_starts()
        self.compare()

    def picture(self) -> Any:
        """All keys by the model, to see whether a call changed anything."""
        return expected(self.model)

    def compare(self) -> None:
        """Assert that the server holds what the model says, and that the invariants hold."""
        for stream, lives in self.model.journal.lives.items():
            if self._lives[stream] != lives:
                self._begin_anew(stream)
        found = self._reader.read()
        self._learn_events(found.events)
        self._learn_outbox(found)
        self._compare(comparable(found.keys), expected(self.model))
        self._invariants.check(found, self.model.now, self.model.limits.rate)

    def _call(self, sent: Sent) -> Any:
        self.model.journal.told = 0
        wanted = _outcome(lambda: getattr(self.model, sent.name)(*sent.args, **sent.fields))
        script = getattr(self.scripts, sent.name)
        got = _outcome(lambda: self._loop.run_until_complete(script(*sent.args, **sent.fields)))
        Rig.transitions[sent.name] += 1
        self.compare()
        if sent.name == "get_position":  # its method answers as the script does, in any order
            got = {name.decode(): value.decode() for name, value in zip(got[::2], got[1::2], strict=True)}
        plain, meant = _plain(got), _plain(wanted)
        assert plain == meant, f"{sent.name} answered\n{plain}\nnot\n{meant}"
        return got

    def _begin_anew(self, stream: str) -> None:
        self._lives[stream] = self.model.journal.lives[stream]
        self._reader.begin_anew(stream)
        if stream == "events":
            self._events, self._invariants = 0, Invariants()

    def _learn_events(self, entries: Sequence[tuple[str, str]]) -> None:
        events = self.model.journal.events[self._events :]
        self._events += len(events)
        told = [msgspec.json.decode(text) for _, text in entries]
        assert told == [event.fields for event in events], (
            f"the events\n{told}\nnot\n{[event.fields for event in events]}"
        )
        for event, (entry_id, _) in zip(events, entries, strict=True):
            event.id = entry_id

    def _learn_outbox(self, found: Found) -> None:
        entries = self.model.journal.new_for_outbox
        told = [(event.fields, job.id, job.data.decode()) for event, job in entries]
        heard = [(msgspec.json.decode(fields["event"]), fields["job"], fields["data"]) for _, fields in found.outbox]
        assert heard == told, f"the outbox got\n{heard}\nnot\n{told}"
        assert [fields["id"] for _, fields in found.outbox] == [event.id for event, _ in entries]
        self.model.journal.outbox += [entry_id for entry_id, _ in found.outbox]
        entries.clear()
        assert found.outbox_length == len(self.model.journal.outbox)

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        if found == wanted:
            return
        names = sorted(name for name in found | wanted if found.get(name) != wanted.get(name))
        lines = [f"  {name}\n    is        {found.get(name)}\n    should be {wanted.get(name)}" for name in names]
        raise AssertionError("the server does not hold what the model says:\n" + "\n".join(lines))


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KargahError as problem:
        return type(problem)


def _plain(value: Any) -> Any:
    """An answer in a form that the model's and the scripts' have in common."""
    match value:
        case Claims():
            return {
                "outcomes": value.outcomes, "sleep_ms": value.sleep_ms, "is_deaf": value.is_deaf,
                "claims": [_plain(each) for each in value.claims],
            }  # fmt: skip
        case Claim():
            return {**_claimed(value.job), "lease": value.lease}
        case Job():
            return {name: _plain(getattr(value, name)) for name in _JOB}
        case ModelEvent():
            return value.id
        case KargahError():
            return type(value)
        case Group() | WorkerInfo():
            return _plain(msgspec.structs.asdict(value))
        case msgspec.Raw():
            return bytes(value)
        case bytes():
            return value.partition(b" ")[0].decode()
        case (str() as event_id, bytes()) if "-" in event_id:
            return event_id
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


_CLAIM = (
    "id", "data", "created_at", "run", "attempts_started", "attempts_made", "stalled", "priority", "started_at",
    "cancel", "error", "checkpoint",
)  # fmt: skip
_JOB = (*_CLAIM, "state", "due_at", "finished_at", "expires_at", "worker", "lease", "progress", "preview", "result",
        "reason", "stack", "pending_children")  # fmt: skip


def _claimed(job: Job) -> dict[str, Any]:
    return {name: _plain(getattr(job, name)) for name in _CLAIM}
