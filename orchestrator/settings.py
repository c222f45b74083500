"""Every setting of the service; the only reader of the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.errors import InvalidOption

PREFIX = "KARGAH_"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, each read from `KARGAH_<NAME>` (upper case). Unknown names are an error.

    Lists are comma-separated. The table in the README is checked against this struct.
    """

    redis_url: str = ""
    """Where Redis or Valkey listens (`redis[s]://`, `redis[s]+cluster://`, `unix://`); empty = the embedded one."""
    data_dir: Path = Path.home() / ".kargah"
    """Folder of the embedded server's data, the pictures and the webhook secret."""
    host: str = "127.0.0.1"
    """Address the api listens on."""
    port: int = 8000
    """Port the api listens on; 0 = a free one."""
    public_url: str = ""
    """How clients reach the api, for URLs in webhooks; empty = http://host:port."""
    queue: str = "generations"
    """The queue of the generations."""
    models: tuple[str, ...] = ("kargah/shapes",)
    """Models that are offered: the built-in one, hub ids, or folders in diffusers' format. The first is the default."""
    device: str = "auto"
    """Where inference runs: auto, cpu, cuda, cuda:0, mps; several, by commas: one inference process each."""
    threads: int = 1
    """CPU threads of one inference process; 0 = torch's own choice."""
    attempts: int = 3
    """Attempts of a generation."""
    backoff_ms: int = 5000
    """First pause between attempts, doubled each time, in milliseconds."""
    keep_completed_s: int = 3600
    """How long a completed generation and its pictures are kept, in seconds."""
    keep_failed_s: int = 86400
    """How long a failed or canceled generation is kept, in seconds."""
    priority: int = 100
    """Priority of a generation that names none (lower is sooner)."""
    timeout_s: int = 600
    """How long one attempt of a generation may run, in seconds."""
    lease_ms: int = 10_000
    """How long a worker holds a job without renewing, in milliseconds."""
    cancel_grace_ms: int = 5000
    """How long a canceled attempt may take to stop before its process is killed, in milliseconds."""
    stop_grace_s: int = 10
    """How long a stopping worker lets its attempts go on before it hands them back, in seconds."""
    progress_interval_ms: int = 100
    """Least distance between two progress events of a job, in milliseconds."""
    preview_every: int = 5
    """Denoising steps between two preview pictures; 0 = none."""
    webhook_secret: str = ""
    """Secret that signs webhooks (`whsec_…`); empty = made at the first start and kept in `data_dir`."""
    webhook_retry_s: tuple[float, ...] = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
    """Pauses before the second and every later delivery attempt, in seconds."""
    webhook_timeout_s: float = 15.0
    """Time for one delivery attempt as a whole, in seconds."""
    webhook_allow_http: bool = False
    """Whether webhook URLs may be plain http."""
    webhook_allow_networks: tuple[str, ...] = ()
    """Networks (CIDR) that webhooks may reach although they are not public."""
    body_limit_bytes: int = 1_048_576
    """Largest request body, in bytes."""
    receive_timeout_s: float = 10.0
    """How long a client may take to send a request's head or body, in seconds."""
    log_format: str = "text"
    """Log lines as `text` or `json`."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings. Raises `InvalidOption` that names the variable."""
        source = os.environ if environ is None else environ
        fields = {field.name: field for field in msgspec.structs.fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in source.items():
            if not variable.startswith(PREFIX):
                continue
            name = variable[len(PREFIX) :].lower()
            if name not in fields:
                raise InvalidOption(variable, "is not a setting of Kargah; see the table in the README")
            values[name] = _read(variable, text, fields[name].type)
        return cls(**values)


def _read(variable: str, text: str, type_: Any) -> Any:
    if type_ is Path:
        return Path(text).expanduser()
    parts: Any = text
    if getattr(type_, "__origin__", None) is tuple:
        parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(parts, type_, strict=False)
    except msgspec.ValidationError as problem:
        raise InvalidOption(variable, str(problem)) from None
