"""Times and rates as people write them: `30s`, `5m`, `10/1s`."""

import re

from orchestrator.errors import InvalidOption

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_RATE = re.compile(r"([0-9]{1,5})/([0-9]{0,9}(?:ms|s|m|h))")


def rate(text: str) -> tuple[int, int]:
    """Starts and milliseconds, from `10/1s`, `500/m` or `0`."""
    if text == "0":
        return 0, 1
    found = _RATE.fullmatch(text)
    if found is None:
        raise InvalidOption("--rate", "must be starts and a time, as in 10/1s or 500/m, or 0")
    span = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    return int(found[1]), duration_ms("--rate", span)


def duration_ms(option: str, text: str) -> int:
    """Milliseconds, from `30s`, `5m` or `0`."""
    found = _DURATION.fullmatch("0ms" if text == "0" else text)
    if found is None:
        raise InvalidOption(option, "must be a time, as in 500ms, 30s, 5m or 1h")
    return int(found[1]) * UNITS_MS[found[2]]


def whole(option: str, text: str) -> int | None:
    """A whole number; None for `default`."""
    if text == "default":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidOption(option, "must be a whole number, or default")
    return int(text)
