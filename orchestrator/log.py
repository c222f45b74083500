"""One canonical line for each finished thing: a dotted event name and its fields."""

import json
import logging
import sys
from typing import Any, Literal

_FIELDS = "kargah_fields"


class Logger:
    """Logs events with fields: `log.info("job.finished", job=id, duration_ms=12)`.

    Never pass prompts, secrets or URLs with credentials.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"kargah.{name}")

    @property
    def tells_info(self) -> bool:
        """Whether `info` says anything: ask before what it costs to know the fields."""
        return self._logger.isEnabledFor(logging.INFO)

    def debug(self, event: str, **fields: Any) -> None:
        """For developers."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something finished as it should."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something went wrong and was dealt with."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something went wrong and somebody should look."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error nobody expected, with its traceback."""
        self._logger.error(event, extra={_FIELDS: fields}, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={_FIELDS: fields})


def get_logger(name: str) -> Logger:
    """The logger `kargah.<name>`."""
    return Logger(name)


def configure(log_format: str = "text", level: int = logging.INFO) -> None:
    """Send Kargah's lines to stderr, as `text` or `json`. For processes of ours; a library user configures logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("json" if log_format == "json" else "text"))
    logger = logging.getLogger("kargah")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


class LineFormatter(logging.Formatter):
    """`time level event key=value …`, or the same as one JSON object. Always one line."""

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__(datefmt="%H:%M:%S")
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        if self._form == "json":
            whole = {"at": int(record.created * 1000), "level": record.levelname.lower(), "event": record.getMessage()}
            return _printable(json.dumps(whole | fields, default=str, ensure_ascii=False))
        pairs = "".join(f" {key}={_word(value)}" for key, value in fields.items())
        return (
            f"{self.formatTime(record, self.datefmt)} {record.levelname.lower()} {_plain(record.getMessage())}{pairs}"
        )


def _word(value: Any) -> str:
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text and text else _quoted(text)


def _plain(text: str) -> str:
    return text if text.isprintable() else _quoted(text)


def _quoted(text: str) -> str:
    return _printable(json.dumps(text, ensure_ascii=False))


def _printable(text: str) -> str:
    """Also separators and marks of direction, which JSON may leave as they are, could fake a line."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
