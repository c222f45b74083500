"""A client of the service's HTTP API: submit, follow, download. What the command line is made of.

with Client("http://127.0.0.1:8000") as client:
    generation = client.submit(GenerationRequest(prompt="a red circle"))
    for event in client.follow(generation.id):
        print(event.type)
    picture = client.download(client.get(generation.id).images[0])
"""

import contextlib
import ipaddress
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import httpx
import msgspec

from orchestrator.errors import RequestRefused, ServiceUnreachable
from orchestrator.generation import GenerationProgress, GenerationRequest, ModelCard
from orchestrator.job import CancelRequest, JobError, JobState
from orchestrator.keys import check_job_id, new_token

T = TypeVar("T")

HEARTBEATS_S = 45.0  # the service sends one each 15 s
PAUSE_S = 0.25
MAX_PAUSE_S = 2.0
RETRY_STATUSES = frozenset((502, 503, 504))


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, with every choice made."""

    prompt: str
    negative_prompt: str = ""
    model: str
    width: int
    height: int
    steps: int
    guidance_scale: float
    seed: int
    num_images: int = 1


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A finished picture; `url` is relative to the service."""

    index: int
    url: str
    width: int
    height: int
    seed: int
    bytes: int
    content_type: str = "image/png"


class GenerationView(msgspec.Struct, frozen=True, kw_only=True):
    """A generation as the service shows it. Instants are ms since the epoch; fields that we do not know are dropped."""

    id: str
    status: JobState
    run: int
    attempt: int
    attempts: int
    input: Input
    created_at: int
    priority: int = 0
    progress: GenerationProgress | None = None
    images: tuple[Picture, ...] = ()
    error: JobError | None = None
    reason: str | None = None
    cancel: CancelRequest | None = None
    canceling: bool = False
    due_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None


class GenerationPage(msgspec.Struct, frozen=True):
    """A part of the list, newest first among the finished ones; `next_cursor` leads to the next part."""

    data: tuple[GenerationView, ...]
    next_cursor: str | None = None


class Readiness(msgspec.Struct, frozen=True):
    """What `/readyz` says."""

    counts: dict[str, int]


class StreamEvent(msgspec.Struct, frozen=True):
    """One server-sent event. `id` is the last id seen so far, from which one can resume; None before there is one."""

    type: str
    id: str | None
    data: dict[str, Any]


class Client:
    """Talks to one service. Once that has answered, short outages are waited out, for `patience_s` at most.

    Every method raises `ServiceUnreachable` or `RequestRefused`, and `InvalidOption` for what can be no id.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0, patience_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self._has_answered = False
        self._stream_timeout = httpx.Timeout(timeout_s, read=HEARTBEATS_S)
        try:
            self._http = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=not _is_local(self.url))
        except httpx.InvalidURL as problem:
            raise ServiceUnreachable(f"{url} is no URL: {problem}") from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def submit(self, request: GenerationRequest) -> GenerationView:
        """Ask for pictures. Sent again after an outage, it is still one generation."""
        body = {name: value for name, value in msgspec.structs.asdict(request).items() if value is not None}
        headers = {"Idempotency-Key": new_token()}
        return self._read(self._call("POST", "/v1/generations", json=body, headers=headers), GenerationView)

    def get(self, generation_id: str) -> GenerationView:
        """A generation as it is now."""
        return self._read(self._call("GET", _path(generation_id)), GenerationView)

    def list(self, *, status: str | None = None, limit: int = 50, cursor: str | None = None) -> GenerationPage:
        """Generations, those under way first."""
        given = {"limit": limit, "status": status, "cursor": cursor}
        params = {name: value for name, value in given.items() if value is not None}
        return self._read(self._call("GET", "/v1/generations", params=params), GenerationPage)

    def cancel(self, generation_id: str) -> GenerationView:
        """Ask it to stop: at once if it waits, within a step if it runs."""
        return self._read(self._call("POST", _path(generation_id, "cancel")), GenerationView)

    def retry(self, generation_id: str) -> GenerationView:
        """Run a finished one again."""
        return self._read(self._call("POST", _path(generation_id, "retry")), GenerationView)

    def remove(self, generation_id: str) -> None:
        """Remove it with its pictures."""
        self._call("DELETE", _path(generation_id))

    def history(self, generation_id: str) -> tuple[StreamEvent, ...]:
        """All that has happened to it."""
        answer: dict[str, Any] = self._read(self._call("GET", _path(generation_id, "events")), dict[str, Any])
        return tuple(StreamEvent(data["type"], data["id"], data) for data in answer["data"])

    def models(self) -> tuple[ModelCard, ...]:
        """The models that the service offers; the first is its default."""
        answer = self._read(self._call("GET", "/v1/models"), dict[str, tuple[ModelCard, ...]])
        return answer["data"]

    def counts(self) -> dict[str, int] | None:
        """Jobs by state; None while the service lives but cannot take work. Does not wait for it."""
        try:
            response = self._http.get("/readyz")
        except httpx.TransportError as problem:
            raise self._unreachable(problem) from problem
        if not response.is_success:
            return None
        return self._read(response, Readiness).counts

    def download(self, picture: Picture) -> bytes:
        """The picture's file."""
        return self._call("GET", picture.url).content

    def follow(self, generation_id: str, last_id: str | None = None) -> Iterator[StreamEvent]:
        """Its events until it is finished: each exactly once, through any number of lost connections.

        Without `last_id` it begins with a `snapshot`; with it, with what came after.
        """
        deadline, pause_s = time.monotonic() + self.patience_s, PAUSE_S
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
            was_open = False
            try:
                for event in self._stream(_path(generation_id, "events"), headers):
                    was_open = True
                    if event.type == "end":
                        return
                    last_id = event.id or last_id
                    if event.type not in ("open", "ready"):
                        yield event
            except httpx.TransportError as problem:
                if not self._has_answered or (not was_open and time.monotonic() > deadline):
                    raise self._unreachable(problem) from problem
            if was_open:
                deadline, pause_s = time.monotonic() + self.patience_s, PAUSE_S
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _stream(self, path: str, headers: Mapping[str, str]) -> Iterator[StreamEvent]:
        with self._http.stream("GET", path, headers=headers, timeout=self._stream_timeout) as response:
            self._has_answered = True
            if response.status_code in RETRY_STATUSES:
                raise httpx.ReadError(f"the service answered {response.status_code}")
            if response.status_code != 200:
                response.read()
                raise _refusal(response)
            yield StreamEvent("open", None, {})
            yield from read_events(response.iter_raw())

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, repeated through an outage: every call may be sent twice."""
        deadline = time.monotonic() + self.patience_s
        pause_s = PAUSE_S
        while True:
            is_last = time.monotonic() > deadline
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as problem:
                if not self._has_answered or is_last:
                    raise self._unreachable(problem) from problem
            else:
                self._has_answered = True
                if response.is_success:
                    return response
                if response.status_code not in RETRY_STATUSES or is_last:
                    raise _refusal(response)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _read(self, response: httpx.Response, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content, type=type_)
        except msgspec.DecodeError as problem:
            raise RequestRefused(
                response.status_code, f"{self.url} does not answer like Kargah: {problem}"
            ) from problem

    def _unreachable(self, problem: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(f"nothing answers at {self.url} ({problem})")


def read_events(chunks: Iterable[bytes]) -> Iterator[StreamEvent]:
    """The events in a stream of bytes, cut anywhere; an unfinished last one is dropped.

    Source: the event stream format of the HTML standard; fields other than event, id and data are passed over.
    """
    name, last_id, data = "message", None, b""
    for line in _lines(chunks):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                yield StreamEvent(name, last_id, msgspec.json.decode(data, type=dict[str, Any]))
            name, data = "message", b""
        elif field == b"event":
            name = value.decode()
        elif field == b"id":
            last_id = value.decode()
        elif field == b"data":
            data += value


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")


def _path(generation_id: str, part: str = "") -> str:
    path = f"/v1/generations/{check_job_id(generation_id)}"
    return f"{path}/{part}" if part else path


def _refusal(response: httpx.Response) -> RequestRefused:
    """The service's problem document as an error; whatever else answers there, as well as can be."""
    problem: Any = None
    with contextlib.suppress(ValueError):
        problem = response.json()
    if not isinstance(problem, dict):
        return RequestRefused(response.status_code, f"{response.url} answered {response.status_code}")
    errors = [f"{each['field']}: {each['problem']}" for each in problem.get("errors") or () if isinstance(each, dict)]
    detail = "; ".join(errors) or str(problem.get("detail") or problem.get("title") or response.status_code)
    return RequestRefused(response.status_code, detail, problem.get("field"))


def _is_local(url: str) -> bool:
    """Whether the URL is this machine's: no proxy of the environment leads there."""
    host = httpx.URL(url).host
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
