"""What a worker and a sandbox's process say to each other, in frames of `orchestrator.frames`.

JSON stays JSON here: a job, a result and the fields of an error travel as its bytes.
"""

from typing import Any

import msgspec

from orchestrator import errors

# From the worker.


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first frame: import this function, with this `sys.path`."""

    target: str
    import_path: list[str]


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run the function for a job; one at a time."""

    job: bytes


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """The job in hand was canceled."""

    by: str
    reason: str


class Halt(msgspec.Struct, frozen=True, tag="halt"):
    """The attempt in hand has to end: nothing that it tells is heard any more."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What came of the call."""

    value: Any = None
    problem: "Problem | None" = None


Command = Load | Run | Asked | Halt | Answer


# From the sandbox's process.


class Problem(msgspec.Struct, frozen=True):
    """An error: its class (of `orchestrator.errors`, else ""), its message, its fields as JSON."""

    type: str
    message: str
    fields: bytes = b"{}"


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The function is imported, or could not be (`problem`)."""

    problem: str | None = None


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call a method of the job, or get one of its properties; one at a time, each answered."""

    method: str
    args: list[Any]
    kwargs: dict[str, Any]


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Tell this progress soon; not answered."""

    value: bytes


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The function returned."""

    result: bytes


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The function raised."""

    problem: Problem


Report = Ready | Call | Progress | Done | Raised

COMMANDS: "msgspec.msgpack.Decoder[Command]" = msgspec.msgpack.Decoder(Command)
REPORTS: "msgspec.msgpack.Decoder[Report]" = msgspec.msgpack.Decoder(Report)

MAX_MESSAGE_CHARS = 4000


def describe(problem: BaseException) -> Problem:
    """An error as it can be sent."""
    try:
        message = str(problem)[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
    except Exception:  # its own __str__ is at fault
        message = ""
    own = _own_class(type(problem))
    if own is None:
        return Problem("", message or type(problem).__name__, msgspec.json.encode({"type": type(problem).__name__}))
    fields = {}
    own_kind = {"kind": getattr(problem, "kind", None)} if own is not type(problem) else {}
    for name, value in (vars(problem) | own_kind).items():
        try:
            fields[name] = msgspec.Raw(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            continue
    return Problem(own.__name__, message, msgspec.json.encode(fields))


def _own_class(kind: type[BaseException]) -> type[errors.KargahError] | None:
    """The class of `orchestrator.errors` that this is, or that a user has derived it from."""
    for base in kind.__mro__:
        if issubclass(base, errors.KargahError) and base.__module__ == errors.__name__:
            return base
    return None


def rebuild(problem: Problem) -> errors.KargahError:
    """The error that was described; one that is not of `orchestrator.errors` is a `TransientError`."""
    fields = msgspec.json.decode(problem.fields, type=dict[str, Any])
    kind = getattr(errors, problem.type, None)
    if not isinstance(kind, type) or not issubclass(kind, errors.KargahError):
        return errors.TransientError(problem.message, **fields)
    error = kind.__new__(kind, problem.message)
    error.__dict__.update({"details": {}} if issubclass(kind, errors.ProcessorError) else {}, **fields)
    return error
