"""Errors as `application/problem+json` (RFC 9457): the one table from error to HTTP status."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from orchestrator import errors
from orchestrator.api.security import SECURITY_HEADERS
from orchestrator.log import get_logger

log = get_logger("api")


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field of the request."""

    field: str
    problem: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A problem document; `type` is `about:blank` where the status says it all."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: tuple[FieldProblem, ...] = ()


class Kind(NamedTuple):
    """How one kind of error is told: its status, the last part of its `type`, and when to try again."""

    status: HTTPStatus
    name: str
    title: str
    retry_after_s: int | None = None


# The nearest class in an error's line of descent decides.
KINDS: Mapping[type[Exception], Kind] = {
    errors.InvalidOption: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-field", "A field is not valid"),
    errors.JobNotFound: Kind(HTTPStatus.NOT_FOUND, "not-found", "There is no such generation"),
    errors.FileMissing: Kind(HTTPStatus.NOT_FOUND, "file-missing", "The picture is not there any more"),
    errors.WrongState: Kind(HTTPStatus.CONFLICT, "wrong-state", "The generation's state does not allow this"),
    errors.QueueFull: Kind(HTTPStatus.TOO_MANY_REQUESTS, "queue-full", "The queue is full", 5),
    errors.OutcomeUnknown: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "outcome-unknown", "No answer came in time", 1),
    errors.StoreUnavailable: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "store-unavailable", "The store is not available", 1),
    errors.LayoutMismatch: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "layout-mismatch", "The store has another layout", 60),
}

# What the store's errors say may name hosts and passwords of the inside: these are told in our words.
STORE_DETAILS: Mapping[type[Exception], str] = {
    errors.OutcomeUnknown: (
        "The call may or may not have had its effect. Sending it again is safe; "
        "a POST /v1/generations only under the same Idempotency-Key."
    ),
    errors.StoreUnavailable: "Redis cannot take the call now; nothing was changed.",
    errors.LayoutMismatch: "The data in Redis were written by another major version; nothing was changed.",
}


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """`problem` as a response. It is never cached."""
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type="application/problem+json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def plain_problem(status: int, detail: str) -> Problem:
    """A problem without a type of its own."""
    return Problem(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail)


def problem_of(error: errors.KargahError) -> tuple[Problem, Kind]:
    """The problem document of an error of ours."""
    cls = next(cls for cls in type(error).__mro__ if cls in KINDS)
    kind = KINDS[cls]
    detail = STORE_DETAILS.get(cls, str(error))
    field: str | None = None
    fields: tuple[FieldProblem, ...] = ()
    if isinstance(error, errors.InvalidOption):
        field, fields = error.field, (FieldProblem(error.field, error.problem),)
    problem = Problem(
        type=f"urn:kargah:problem:{kind.name}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        field=field,
        errors=fields,
    )
    return problem, kind


async def _on_kargah_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.KargahError)
    problem, kind = problem_of(error)
    headers = {} if kind.retry_after_s is None else {"Retry-After": str(kind.retry_after_s)}
    return problem_response(problem, headers)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(plain_problem(error.status_code, error.detail), error.headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # for nobody: the client left before its request was complete


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("request.crashed", method=request.method, error=type(error).__name__)
    return problem_response(plain_problem(500, "This is a fault of the service; its log says more."), SECURITY_HEADERS)


HANDLERS: Mapping[int | type[Exception], ExceptionHandler] = {
    **dict.fromkeys(KINDS, _on_kargah_error),
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
    Exception: _on_bug,
}
