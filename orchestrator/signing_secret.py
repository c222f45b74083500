"""The secret that signs webhooks: given by the operator, or made once and kept in the data folder."""

import base64
import binascii
import os
import secrets
from pathlib import Path

from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings

PREFIX = "whsec_"
FILE_NAME = "webhook_secret"
KEY_BYTES = 32
MAX_KEYS = 10


def load(settings: Settings) -> str:
    """The secret as receivers know it: `whsec_` and the standard base64 of 24 to 64 random bytes.

    During a rotation it is several, separated by spaces, the newest first. Any number of processes may call this at the
    same moment, also the first time: one of them makes the secret, all return it. Raises `InvalidOption` if what the
    operator gave, or the file holds, is no secret.
    """
    if settings.webhook_secret:
        keys(settings.webhook_secret)
        return settings.webhook_secret
    path = settings.data_dir / FILE_NAME
    if not path.exists():
        _create(path)
    secret = path.read_text("ascii", errors="replace").strip()
    keys(secret)
    return secret


def keys(secret: str) -> tuple[bytes, ...]:
    """The keys in `secret`, newest first. Raises `InvalidOption`, which never quotes it."""
    found = tuple(_key(part) for part in secret.split())
    if not 1 <= len(found) <= MAX_KEYS:
        raise InvalidOption("webhook_secret", f"must hold 1 to {MAX_KEYS} secrets")
    return found


def new() -> str:
    """A fresh secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new() + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # whole or not at all, and never over one that is in use
    except FileExistsError:
        pass  # another process was first
    finally:
        draft.unlink()


def _key(part: str) -> bytes:
    try:
        key = base64.b64decode(part.removeprefix(PREFIX), validate=True) if part.startswith(PREFIX) else b""
    except binascii.Error:
        key = b""
    if not 24 <= len(key) <= 64:
        raise InvalidOption("webhook_secret", f"must be {PREFIX} and the standard base64 of 24 to 64 bytes")
    return key
