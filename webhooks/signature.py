"""Signing as Standard Webhooks 1.0 says: what a receiver checks to know that a message is ours and fresh."""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def message_id(job_id: str, event_id: str) -> str:
    """`msg_<job>_<event>`: the same for every attempt, so that receivers can drop repeats.

    The signed text is joined by dots, so an id may hold none; a job id that could is hashed.
    """
    job = job_id if _JOB_ID.fullmatch(job_id) else hashlib.sha256(job_id.encode()).hexdigest()[:32]
    return f"msg_{job}_{event_id}"


def signed_headers(message: str, at_s: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The three headers of the message `message`, sent at `at_s` (unix seconds), one signature per key.

    Source: Standard Webhooks 1.0, symmetric signatures (`v1`, HMAC-SHA256).
    """
    text = f"{message}.{at_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, text, "sha256")).decode() for key in keys)
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
