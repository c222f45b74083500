"""What a queue remembers of calls, so that one sent again has one effect and one answer."""

from typing import Any, NamedTuple

from tests.model.expiring import Expiring
from tests.model.job import ModelJob

ANSWER_MS = 60_000
LANE_MS = 120_000
TOMBSTONE_MS = 60_000
RESULT_MS = 60_000
LINGERED_MS = 60_000


class LaneCall(NamedTuple):
    """The last call of a lane: what became of its finishes, and (id, lease) of its claims."""

    token: str
    outcomes: list[str]
    claims: list[tuple[str, str]]
    sleep_ms: int
    is_deaf: bool = False


class GoneJob:
    """The answer of a call that ended a job and its record: the job as it was."""

    def __init__(self, job: ModelJob, reply: dict[str, Any]) -> None:
        self.reply = reply
        self.id, self.definition, self.created_at = job.id, job.definition.decode(), str(job.created_at)
        self.fields = dict(vars(job))
        self.added = job.added_event


class Memory:
    """Answers by request token, lanes' last calls, tombstones, results of jobs that were not kept."""

    def __init__(self) -> None:
        self.answers: Expiring[Any] = Expiring()
        self.lanes: Expiring[LaneCall] = Expiring()
        self.tombstones: Expiring[dict[str, Any]] = Expiring()
        self.results: Expiring[str] = Expiring()
        self.lingered: Expiring[str] = Expiring()

    def answer(self, now: int, token: str, text: Any) -> Any:
        self.answers.set(token, text, now + ANSWER_MS)
        return text

    def lane_call(self, lane: str, token: str, finishes: int) -> LaneCall | None:
        """What a call is answered from without doing anything; None: it is new."""
        last = self.lanes.get(lane)
        if last is None or last.token == token:
            return last
        number, newest = _number(token), _number(last.token)
        if number is not None and newest is not None and number < newest:
            return LaneCall(token, ["LEASE_LOST"] * finishes, [], -1)
        return None

    def bury(self, job: ModelJob, ended_at: int) -> None:
        """Leave a tombstone; the event is looked up when it is read: its id is the server's."""
        self.tombstones.set(
            job.id,
            {
                "token": job.token, "state": job.state, "run": job.run, "seq": job.seq,
                "event": job.history[-1], "created_at": str(job.created_at),
            },
            ended_at + TOMBSTONE_MS,
        )  # fmt: skip

    def end_before(self, now: int) -> None:
        for each in (self.answers, self.lanes, self.tombstones, self.results, self.lingered):
            each.end_before(now)


def _number(token: str) -> int | None:
    first, dash, _ = token.partition("-")
    return int(first) if dash and first.isdigit() else None
