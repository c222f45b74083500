"""The HTTP client: outages, resumption, refusals."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client import Client, Picture, StreamEvent, read_events
from orchestrator.errors import InvalidOption, RequestRefused, ServiceUnreachable
from orchestrator.generation import GenerationRequest
from orchestrator.job import JobState
from tests.orchestrator.fake_service import (
    FakeService,
    Request,
    fake_service,
    generation,
    problem,
    says,
    sends,
    sse,
    streams,
)

ID = "0123456789abcdefghjkmnpqrs"
EVENTS = f"GET /v1/generations/{ID}/events"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as service:
        yield service


@pytest.fixture
def client(service: FakeService) -> Iterator[Client]:
    """A client that has had an answer already."""
    service.on("GET /v1/models", says({"data": []}))
    with Client(service.url, patience_s=20.0) as client:
        client.models()
        service.requests.clear()
        yield client


def hang_up(request: Request) -> None:
    request.handler.close_connection = True


def test_a_submission_is_sent_again_through_an_outage_with_the_same_key(service: FakeService, client: Client) -> None:
    service.on("POST /v1/generations", hang_up, problem(503, "Redis is away"), says(generation(), 202))
    submitted = client.submit(GenerationRequest(prompt="a red circle", seed=7))
    assert submitted.status is JobState.WAITING
    assert len(service.requests) == 3
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 1
    assert service.requests[0].body["prompt"] == "a red circle"
    assert "width" not in service.requests[0].body


def test_a_service_that_never_answered_is_not_waited_for() -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=60.0) as client,
        pytest.raises(ServiceUnreachable, match=r"127\.0\.0\.1:9"),
    ):
        client.submit(GenerationRequest(prompt="a red circle"))


def test_patience_ends(service: FakeService, client: Client) -> None:
    client.patience_s = 0.0
    service.on("GET /v1/models", hang_up)
    with pytest.raises(ServiceUnreachable):
        client.models()
    service.on("GET /v1/models", problem(503, "Redis is away"))
    with pytest.raises(RequestRefused, match="Redis is away"):
        client.models()


def test_a_refusal_names_the_field(service: FakeService, client: Client) -> None:
    errors = [{"field": "width", "problem": "must be a multiple of 8"}]
    service.on("POST /v1/generations", problem(422, "not valid", field="width", errors=errors))
    with pytest.raises(RequestRefused, match="width: must be a multiple of 8") as refused:
        client.submit(GenerationRequest(prompt="a red circle", width=63))
    assert (refused.value.status, refused.value.field) == (422, "width")


def test_something_else_that_answers_is_recognized(service: FakeService, client: Client) -> None:
    service.on(f"GET /v1/generations/{ID}", sends(b"<html>It works!</html>", "text/html"))
    with pytest.raises(RequestRefused, match="does not answer like Kargah"):
        client.get(ID)


def test_following_goes_on_after_lost_connections_with_each_event_once(service: FakeService, client: Client) -> None:
    service.on(
        EVENTS,
        streams(
            sse("snapshot", generation=generation()), sse("ready", "1-0"), sse("active", "2-0"), "event: progress\nda"
        ),
        hang_up,
        streams(":\n\n", sse("progress", "3-0"), "id: 4-0\nevent: mile"),
        streams(sse("milestone", "4-0"), sse("completed", "5-0"), sse("end")),
    )
    seen = [(event.type, event.id) for event in client.follow(ID)]
    assert seen == [
        ("snapshot", None),
        ("active", "2-0"),
        ("progress", "3-0"),
        ("milestone", "4-0"),
        ("completed", "5-0"),
    ]
    assert [request.headers.get("last-event-id") for request in service.requests] == [None, "2-0", "2-0", "3-0"]


def test_following_can_begin_where_one_left_off(service: FakeService, client: Client) -> None:
    service.on(EVENTS, streams(sse("completed", "5-0"), sse("end")))
    assert [event.type for event in client.follow(ID, "4-0")] == ["completed"]
    assert service.requests[0].headers["last-event-id"] == "4-0"


def test_following_what_is_not_there_is_refused(client: Client) -> None:
    with pytest.raises(RequestRefused) as refused:
        list(client.follow(ID))
    assert refused.value.status == 404


@pytest.mark.parametrize("name", ["..", "../models", "a/b", "a?b", "a#b", "", "a\nb"])
def test_an_id_cannot_lead_elsewhere(service: FakeService, client: Client, name: str) -> None:
    with pytest.raises(InvalidOption):
        client.get(name)
    assert service.requests == []


def test_readiness_is_asked_without_patience(service: FakeService, client: Client) -> None:
    service.on("GET /readyz", says({"status": "ready", "counts": {"active": 1}}))
    assert client.counts() == {"active": 1}
    service.on("GET /readyz", problem(503, "Redis is away"))
    assert client.counts() is None


def test_a_picture_is_downloaded_as_it_is(service: FakeService, client: Client) -> None:
    url = f"/v1/generations/{ID}/images/0"
    service.on(f"GET {url}", sends(b"\x89PNG...", "image/png"))
    assert client.download(Picture(index=0, url=url, width=64, height=64, seed=7, bytes=7)) == b"\x89PNG..."


STREAM = (
    ":\n\n"
    + sse("snapshot", generation={"prompt": "line\u2028separator\x85and\rcarriage"})
    + "event: progress\r\nid: 7-1\r\nretry: 1000\r\ndata: {}\r\n\r\n"
    + "data: {}\n\n"
    + "event: empty\n\n"
    + "event: unfinished\ndata: {}\n"
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_read_however_the_stream_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert list(read_events(chunks)) == [
        StreamEvent("snapshot", None, {"generation": {"prompt": "line\u2028separator\x85and\rcarriage"}}),
        StreamEvent("progress", "7-1", {}),
        StreamEvent("message", "7-1", {}),
    ]
