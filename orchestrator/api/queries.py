"""Query parameters: read, checked, refused with their names."""

import re

from starlette.requests import Request

from orchestrator.errors import InvalidOption, JobNotFound
from orchestrator.job import JobState
from orchestrator.keys import check_job_id

MAX_START = 1000
_CURSOR = re.compile(r"p[0-9]{1,4}", re.ASCII)
STATES = tuple(JobState)


def job_id_of(request: Request) -> str:
    """The id in the path. What cannot be one names no job: `JobNotFound`."""
    text: str = request.path_params["id"]
    try:
        return check_job_id(text)
    except InvalidOption:
        raise JobNotFound("there is no generation of this id") from None


def read_int(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise InvalidOption(name, f"must be a whole number from {low} to {high}")
    return int(text)


def read_state(request: Request) -> JobState | None:
    """The status to choose by; None for all."""
    text = request.query_params.get("status")
    if text is None:
        return None
    if text not in STATES:
        raise InvalidOption("status", f"must be one of {', '.join(STATES)}")
    return JobState(text)


def read_cursor(request: Request) -> int:
    """Where the page begins. A cursor is a position: what is added meanwhile may move a generation to the next page."""
    text = request.query_params.get("cursor")
    if text is None:
        return 0
    if not _CURSOR.fullmatch(text) or int(text[1:]) > MAX_START:
        raise InvalidOption("cursor", "must be a next_cursor of an earlier page")
    return int(text[1:])


def write_cursor(start: int) -> str | None:
    """The cursor of the page that begins at `start`; None where the list may not be read further."""
    return f"p{start}" if start <= MAX_START else None
