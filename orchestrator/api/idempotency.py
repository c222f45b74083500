"""Idempotency-Key: the same request under the same key is one generation, however often it is sent.

The key makes the job's id, and adding the same id again gives the job that is there. Nothing else is remembered, so a
key lives exactly as long as its job. Source: draft-ietf-httpapi-idempotency-key-header.
"""

import base64
import hashlib
import re

import msgspec
from starlette.requests import Request

from orchestrator.api.resource import generation_of
from orchestrator.errors import InvalidOption
from orchestrator.generation import Generation, GenerationRequest
from orchestrator.job import Job, JobOptions
from orchestrator.keys import new_job_id

HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def read_key(request: Request) -> str | None:
    """The key, if the client gave one."""
    key = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidOption(HEADER, "must have 1 to 255 visible ASCII characters")
    return key


def id_of(key: str | None) -> str:
    """The id of the key's job: 125 bits of its digest, in an alphabet that no other id has. A new id without a key."""
    if key is None:
        return new_job_id()
    return "key-" + base64.b32encode(hashlib.sha256(key.encode()).digest()).decode()[:25].lower()


def with_seed(asked: GenerationRequest, key: str | None) -> GenerationRequest:
    """The request with its seed drawn from key and content where the client left it open, so that a repeat is equal."""
    if key is None or asked.seed is not None:
        return asked
    digest = hashlib.sha256(key.encode() + b"\n" + msgspec.json.encode(asked)).digest()
    return msgspec.structs.replace(asked, seed=int.from_bytes(digest[:4], "big"))


def check_repeat(job: Job, generation: Generation, options: JobOptions) -> None:
    """Raise `InvalidOption` if the key's job was another request."""
    if generation_of(job) != generation or job.header.priority != options.priority:
        raise InvalidOption(HEADER, "was used for another request; a repeat must have the same body")
