"""Options and definitions of jobs, without a server."""

import math

import msgspec
import pytest

from orchestrator.errors import InvalidOption
from orchestrator.job import (
    EVENT_TYPES,
    KEEP_ALL,
    MAX_PRIORITY,
    CancelRequest,
    Header,
    JobOptions,
    JobState,
    KeepJobs,
    clip,
    encode_json,
)


def test_a_header_leaves_out_what_is_the_default() -> None:
    assert msgspec.json.encode(JobOptions().header("paint")) == b'{"n":"paint"}'


def test_a_header_is_read_back_as_it_was_written() -> None:
    options = JobOptions(
        priority=MAX_PRIORITY,
        delay_ms=5,
        lifo=True,
        attempts=100,
        backoff=7,
        timeout_ms=1,
        expires_ms=2,
        max_stalled=0,
        remove_on_complete=KeepJobs(age_s=3, count=4),
        remove_on_fail=True,
        keep_logs=0,
        notify=("failed",),
        has_files=True,
    )
    header = options.header("paint")
    assert msgspec.json.decode(msgspec.json.encode(header), type=Header) == header
    assert b"\n" not in msgspec.json.encode(header)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, KeepJobs()),
        (True, KeepJobs(count=0)),
        (False, KeepJobs(count=KEEP_ALL)),
        (KeepJobs(), KeepJobs(count=KEEP_ALL)),
        (5, KeepJobs(count=5)),
        (KeepJobs(age_s=1), KeepJobs(age_s=1)),
    ],
)
def test_the_short_forms_of_retention(value: bool | int | KeepJobs | None, kept: KeepJobs) -> None:
    assert KeepJobs.of(value, "field") == kept


def test_every_event_type_may_be_asked_for() -> None:
    assert JobOptions(notify=tuple(sorted(EVENT_TYPES))).header("x").notify == tuple(sorted(EVENT_TYPES))


def test_only_finished_states_are_finished() -> None:
    assert [state for state in JobState if state.is_finished] == ["completed", "failed", "canceled"]


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": {"b": (-math.inf,)}}, [None, math.nan]], ids=repr)
def test_a_number_that_json_cannot_say_is_never_turned_into_null(value: object) -> None:
    with pytest.raises(InvalidOption, match="is no JSON number"):
        encode_json("data", value, 1000)


def test_null_itself_is_fine() -> None:
    assert encode_json("data", {"null": None, "n": 1.5}, 1000) == b'{"null":null,"n":1.5}'


@pytest.mark.parametrize("text", ["x" * 1000, "\x00" * 1000, "🎨" * 1000, "\ud800" * 1000, '"' * 1000, ""])
def test_a_clipped_text_fits_and_is_unicode(text: str) -> None:
    kept = clip(text, 100)
    assert len(msgspec.json.encode(kept)) <= 102
    assert bool(kept) == bool(text)


def test_a_cancel_request_is_read_back() -> None:
    request = CancelRequest("me", "why")
    assert msgspec.json.decode(msgspec.json.encode(request), type=CancelRequest) == request
