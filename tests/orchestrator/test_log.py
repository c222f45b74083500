"""A line for each finished thing, and always one line."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from orchestrator.log import LineFormatter, get_logger

log = get_logger("test")


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What is logged, in the form the test is parametrised with."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(request.param))
    logger = logging.getLogger("kargah.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_a_text_line_is_time_level_event_and_fields(lines: io.StringIO) -> None:
    log.info("job.finished", job="a", attempt="1/3", duration_ms=12)
    time, rest = lines.getvalue().split(" ", 1)
    assert len(time) == 8
    assert rest == "info job.finished job=a attempt=1/3 duration_ms=12\n"


@pytest.mark.parametrize("lines", ["json"], indirect=True)
def test_a_json_line_is_one_object(lines: io.StringIO) -> None:
    log.warning("job.finished", error="two\nlines", job="é")
    record = json.loads(lines.getvalue())
    assert record | {"at": 0} == {
        "at": 0,
        "level": "warning",
        "event": "job.finished",
        "error": "two\nlines",
        "job": "é",
    }


@pytest.mark.parametrize("lines", ["text", "json"], indirect=True)
def test_hostile_values_and_tracebacks_stay_on_one_line_without_control_characters(lines: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond\x1b[31m")
    except ValueError:
        log.exception("oh\nno", word="a b\r\nc\x1b]0;title\x07", empty="", separator="\u2028\x85")
    (line,) = lines.getvalue()[:-1].split("\n")
    assert "\x1b" not in line
    assert "\r" not in line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_what_is_below_the_level_is_not_written(lines: io.StringIO) -> None:
    log.debug("job.raised")
    assert lines.getvalue() == ""
