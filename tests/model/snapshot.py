"""All that the server holds of a queue, read in one script, and what it should hold by the model."""

from typing import Any, NamedTuple

import msgspec

from tests import record
from tests.model.job import FINISHED, ModelJob
from tests.model.memory import GoneJob
from tests.model.reference import Reference

TAIL = 8
"""So many of the newest entries of a history are read after every call: more than one call can add."""

Value = Any
Key = tuple[Value, int]
"""A value and when it ends by itself; −1: never."""

_READ = r"""
local prefix, found = string.sub(KEYS[1], 1, -5), {}
local function counters(text)
    local numbers = { struct.unpack(ARGV[4], text) }
    for i = 1, #numbers do numbers[i] = string.format('%.0f', numbers[i]) end
    return table.concat(numbers, ' ', 1, #numbers - 1)
end
local read = {
    hash = function(key) return redis.call('HGETALL', key) end,
    meta = function(key)
        local text, flat, at = redis.call('GET', key), {}, 0
        local values = { struct.unpack(ARGV[6], text) }
        for name in string.gmatch(ARGV[5], '%S+') do
            at = at + 1
            flat[2 * at - 1], flat[2 * at] = name, string.format('%.0f', values[at])
        end
        if values[at + 1] <= #text then
            for name, value in pairs(cmsgpack.unpack(string.sub(text, values[at + 1]))) do
                flat[#flat + 1], flat[#flat + 2] = name, value
            end
        end
        return flat
    end,
    zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
    string = function(key, name)
        local text = redis.call('GET', key)
        return name == 'totals:before' and counters(text) or text
    end,
    record = function(key)
        local text, flat, from, flags = redis.call('GET', key), {}, 1, 0
        local function add(name, value)
            flat[#flat + 1] = name
            flat[#flat + 1] = type(value) == 'number' and string.format('%.0f', value) or tostring(value)
        end
        for i = 7, #ARGV, 3 do
            if flags < tonumber(ARGV[i + 1]) then break end
            local values, at = { struct.unpack(ARGV[i + 2], text, from) }, 0
            for name in string.gmatch(ARGV[i], '%S+') do
                at = at + 1
                if name == 'flags' then flags = values[at]
                elseif name == 'born' then
                    local created_at, ms, number, token = struct.unpack('<I6I6I4s', values[at])
                    add('created_at', created_at)
                    add('added', string.format('%.0f-%.0f', ms, number))
                    add('token', token)
                elseif values[at] ~= 0 and values[at] ~= '' then add(name, values[at]) end
            end
            from = values[at + 1]
        end
        if flags % 2 == 1 then add('plain', 'true') end
        if from <= #text then
            for name, value in pairs(cmsgpack.unpack(string.sub(text, from))) do add(name, value) end
        end
        return flat
    end,
    list = function(key, name)
        local from = string.sub(name, 1, 4) == 'log:' and ARGV[3] or 0
        local entries = redis.call('LRANGE', key, from, -1)
        entries[#entries + 1] = tostring(redis.call('LLEN', key))
        return entries
    end,
}
for _, key in ipairs(redis.call('KEYS', prefix .. '*')) do
    local name, kind = string.sub(key, #prefix + 1), redis.call('TYPE', key).ok
    if kind ~= 'stream' and name ~= 'clock' then
        if string.sub(name, 1, 6) == 'state:' then kind = 'record' end
        if name == 'meta' then kind = 'meta' end
        found[#found + 1] = { name, kind, redis.call('PEXPIRETIME', key), read[kind](key, name) }
    end
end
local function new(name, after)
    local entries = redis.call('XRANGE', prefix .. name, after, '+')
    return #entries > 0 and entries or false
end
return cjson.encode({ found, new('events', ARGV[1]), new('outbox', ARGV[2]), redis.call('XLEN', prefix .. 'outbox') })
"""


class Found(NamedTuple):
    """Keys by name, the events and the outbox entries since the last time, and how many are in the outbox."""

    keys: dict[str, Key]
    events: list[tuple[str, str]]
    outbox: list[tuple[str, dict[str, str]]]
    outbox_length: int


class Reader:
    """Reads a queue again and again."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._script = client.register_script(_READ)
        self._prefix = prefix
        self._event_id = self._outbox_id = "-"

    def begin_anew(self, stream: str) -> None:
        """The stream was deleted: what it has now is new."""
        if stream == "events":
            self._event_id = "-"
        else:
            self._outbox_id = "-"

    def read(self, tail: int = TAIL) -> Found:
        """What is there now. Scores and ends are whole milliseconds."""
        text = self._script(
            [f"{self._prefix}meta"],
            [self._event_id, self._outbox_id, -tail, record.counters()[1], *_meta_part(), *_parts()],
        )
        found, events, outbox, length = msgspec.json.decode(text)
        if events:
            self._event_id = f"({events[-1][0]}"
        if outbox:
            self._outbox_id = f"({outbox[-1][0]}"
        keys = {name: (_value(kind, value), ends_at) for name, kind, ends_at, value in found or []}
        return Found(
            keys,
            [event for entry_id, fields in events or [] for event in _together(entry_id, fields[1])],
            [(entry_id, _pairs(fields)) for entry_id, fields in outbox or []],
            length,
        )


def _meta_part() -> list[str]:
    return [" ".join(record.meta_part().names), record.meta_part().format]


def _parts() -> list[str | int]:
    """Of each part of a record: the names, which flags it needs, and its format."""
    parts = zip(record.parts(), record.FLAGS, strict=True)
    return [text for part, flags in parts for text in (" ".join(part.names), flags, part.format)]


def _together(entry_id: str, lines: str) -> list[tuple[str, str]]:
    """The events of an entry of the stream, whose id is that of the last."""
    ms, _, last = entry_id.partition("-")
    texts = lines.split("\n")
    return [(f"{ms}-{number}", text) for number, text in enumerate(texts, int(last) - len(texts) + 1)]


def expected(model: Reference, tail: int = TAIL) -> dict[str, Key]:
    """Every key that a queue in the model's state has."""
    forever: dict[str, Value] = {"meta": _meta(model), "marker": {"0": 0} if model.marker else {}}
    forever |= {"wait": _members(model.in_wait()), "grouped": _members(model.in_groups())}
    forever["delayed"] = {job.member: job.due_at for job in model.of("delayed")}
    forever["active"] = {job.id: job.lease_ends_at for job in model.of("active")}
    forever["waiting_children"] = {job.id: job.parked_at for job in model.of("waiting-children")}
    for state in FINISHED:
        forever |= {state: dict(model.finished[state]), f"expires:{state}": dict(model.expires[state])}
    forever |= {name: dict(getattr(model, name)) for name in ("dead", "deadlines", "sweep", "workers")}
    forever |= {"untold": dict(model.untold)}
    forever |= {f"untold:{root}": _list(entries) for root, entries in model.untold_lists.items()}
    forever |= {"totals:before": _numbers(model.counters.before) or {}}
    keys = {name: (value, -1) for name, value in (forever | _groups(model)).items()}
    for job in model.jobs.values():
        keys |= _job(job, tail)
    keys |= _ending(model) | _memory(model)
    return {name: key for name, key in keys.items() if key[0] not in ({}, [])}


def _meta(model: Reference) -> dict[str, str]:
    limits, counters = model.limits, model.counters
    fields = {
        "epoch": model.epoch, "sequence": model.sequence or None, "paused": 1 if limits.paused else None,
        "concurrency": limits.concurrency, "rate_max": limits.rate and limits.rate[0],
        "rate_ms": limits.rate and limits.rate[1], "limited_until": limits.limited_until,
        "notify": model.journal.notify or None, "looked_at": model.looked_at, "grace_until": model.grace_until,
        "event_ms": model.journal.newest_ms or None, "event_number": model.journal.newest_number or None,
        **{kind: count or None for kind, count in counters.totals.items()},
        "max_waiting": limits.max_waiting, "closing_until": limits.closing_until, "minute": counters.minute,
        "metrics": "off" if counters.are_off else None, "grouped": 1 if model.grouped else None,
        "vtime": _exact(model.vtime), "pace": _exact(model.pace), **model.defaults,
        **{f"trim_{state}": f"{score} {job_id}" for state, (score, job_id) in model.trims.items()},
    }  # fmt: skip
    there = {name: str(value) for name, value in fields.items() if value is not None}
    return {"layout": record.layout()} | there if there else {}


def _groups(model: Reference) -> dict[str, Value]:
    keys: dict[str, Value] = {
        name: dict(model.places[place])
        for place, name in (("ring", "groups"), ("held", "groups:held"), ("idle", "groups:idle"))
    }
    for gid, group in model.groups.items():
        keys[f"ginfo:{gid}"] = {
            "place": group.place, "tag": _exact(group.tag), "active": str(group.active),
            **{name: "1" if value is True else _exact(value) for name, value in group.settings.items()},
        }  # fmt: skip
    for job in model.in_groups():
        keys.setdefault(f"group:{job.group}", {})[job.member] = job.group_score
    for job in model.of("waiting"):
        if job.batch_key:
            keys.setdefault(f"batch:{job.batch_key}", {})[job.member] = job.current_priority
    return keys


def _ending(model: Reference) -> dict[str, Key]:
    """What ends by itself."""
    keys: dict[str, Key] = {name: (_list([str(at) for at in window.starts]), window.ends_at)
                            for name, window in model.windows().items()}  # fmt: skip
    keys |= {f"preview:{job_id}": entry for job_id, entry in model.previews.items()}
    keys |= {f"dedup:{name}": entry for name, entry in model.dedup.items()}
    keys |= {f"dedup_next:{name}": (dict(value), -1) for name, value in model.dedup_next.items()}
    keys |= {f"worker:{worker}": entry for worker, entry in model.worker_records.items()}
    return keys | {f"metrics:{minute}": (_texts(counts), at) for minute, (counts, at) in model.counters.minutes.items()}


def _job(job: ModelJob, tail: int) -> dict[str, Key]:
    ends_at = -1 if job.expires_at is None else job.expires_at
    values = {name: getattr(job, name, None) for name in record.fields()}
    keys: dict[str, Value] = {
        "job": job.definition.decode(),
        "state": {name: str(value) for name, value in values.items() if value is not None},
        "lines": _list(job.lines),
        "children": dict(job.family),
    }
    if len(job.history) > 1:
        entries = [(event.id, event.fields) for event in job.history[1:][-tail:]]
        keys["log"] = entries, len(job.history) - 1
    return {f"{kind}:{job.id}": (value, ends_at) for kind, value in keys.items()}


def _memory(model: Reference) -> dict[str, Key]:
    keys: dict[str, Key] = {}
    memory = model.memory
    for token, (text, ends_at) in memory.answers.entries.items():
        keys[f"answer:{token}"] = _answer(text), ends_at
    for lane, (call, ends_at) in memory.lanes.entries.items():
        first = f"{call.token} {call.sleep_ms} {int(call.is_deaf)}"
        ids = " ".join(job_id for job_id, _ in call.claims)
        keys[f"answer:{lane}"] = "\n".join((first, " ".join(call.outcomes), ids)), ends_at
    for job_id, (gone, ends_at) in memory.tombstones.entries.items():
        keys[f"gone:{job_id}"] = gone | {"event": gone["event"].id}, ends_at
    for job_id, (result, ends_at) in memory.results.entries.items():
        keys[f"result:{job_id}"] = result, ends_at
    keys |= {f"lingered:{worker}": entry for worker, entry in memory.lingered.entries.items()}
    return keys


Told = tuple[str, dict[str, Any]]
"""An event: its id, and the rest."""


def _history(log: Key, began: list[Told], ended: list[Told], tail: int) -> Key:
    """The newest events of a job, of which the first and the last may be told by its record, and how many there are."""
    (*entries, length), ends_at = log
    parts = [entry.partition(" ") for entry in entries]
    listed = [(entry_id, msgspec.json.decode(text)) for entry_id, _, text in parts]
    return ([*began, *listed, *ended][-tail:], int(length) + len(began) + len(ended)), ends_at


def _told_by(values: dict[str, str], job_id: str, definition: str) -> tuple[list[Told], list[Told]]:
    """The events that a record tells: how the job began, and how it ended."""
    began, ended = values.pop("began", None), values.pop("ended", None)
    common = {"job": job_id, "run": int(values["run"]), "attempt": int(values.get("started", 0))}
    beginning = {"type": "active", "at": int(values.get("started_at", 0)), "seq": 2, "prev": "waiting"}
    first = common | beginning | {"worker": values.get("worker")}
    last = common | {"type": values["state"], "at": int(values.get("finished_at", 0)), "seq": int(values["seq"])}
    if values["state"] == "completed":
        result, size = values["result"], len(values["result"].encode())
        last |= {"started_at": int(values["started_at"])}
        last |= {"result_bytes": size} if size > 2048 else {"result": msgspec.json.decode(result)}
    elif values["state"] == "failed":
        header = msgspec.json.decode(definition.partition("\n")[0])
        last |= {"reason": values["reason"], "error": msgspec.json.decode(values["error"])}
        last |= {"attempts_made": int(values.get("made", 0)), "attempts": header.get("a", 1)}
    if "expires_at" in values:
        last["expires_at"] = int(values["expires_at"])
    return [(began, first)] if began else [], [(ended, last)] if ended else []


def comparable(keys: dict[str, Key], tail: int = TAIL) -> dict[str, Key]:
    """What was read, with the JSON that the scripts write decoded."""
    changed = dict(keys)
    for name, (value, ends_at) in keys.items():
        kind, _, job_id = name.partition(":")
        if kind == "state":
            values = dict(value)
            began, ended = _told_by(values, job_id, keys[f"job:{job_id}"][0])
            changed[name] = values, ends_at
            if began or ended or f"log:{job_id}" in keys:
                changed[f"log:{job_id}"] = _history(keys.get(f"log:{job_id}", (["0"], ends_at)), began, ended, tail)
        elif kind == "gone":
            changed[name] = msgspec.json.decode(value), ends_at
        elif kind == "answer" and value.startswith("["):
            answer = msgspec.json.decode(value)
            changed[name] = [*answer[:3], *([_pairs(answer[3:])] if answer[3:] else [])], ends_at
    return changed


def _answer(answer: Any) -> Value:
    """What is remembered of a call: a text, a few numbers, or a job that is gone."""
    if not isinstance(answer, GoneJob):
        return list(answer) if isinstance(answer, tuple) else answer
    untold = ("created_at", "plain")
    values = {name: answer.fields.get(name) for name in record.fields() if name not in untold}
    texts = {name: str(value) for name, value in (values | {"added": answer.added.id}).items() if value is not None}
    return [answer.id, answer.definition, answer.created_at, texts]


def _members(jobs: list[ModelJob]) -> dict[str, int]:
    return {job.member: job.current_priority for job in jobs}


def _texts(counts: dict[str, int]) -> dict[str, str]:
    return {kind: str(count) for kind, count in counts.items()}


def _numbers(counts: dict[str, int]) -> str | None:
    """Packed counters, as they are read here; none before anything was counted."""
    kinds, _ = record.counters()
    return " ".join(str(counts.get(kind, 0)) for kind in kinds) if counts else None


def _exact(number: float | None) -> str | None:
    """As the scripts write fractions."""
    return None if number is None else f"{number:.17g}"


def _list(entries: list[str]) -> list[str]:
    """A list as it is read: its length comes after its entries."""
    return [*entries, str(len(entries))] if entries else []


def _value(kind: str, value: Any) -> Value:
    if kind == "hash":
        return _pairs(value)
    if kind == "record":
        return _record(_pairs(value))
    if kind == "meta":
        return _found_meta(_pairs(value))
    if kind == "zset":
        return {member: float(score) for member, score in _pairs(value).items()}
    return value


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _found_meta(values: dict[str, str]) -> dict[str, str]:
    layout = f"{values.pop('major')}.{values.pop('minor')}"
    return {"layout": layout} | {name: value for name, value in values.items() if value != "0"}


def _record(values: dict[str, str]) -> dict[str, str]:
    return values | {"state": record.states()[int(values.pop("code")) - 1]}
