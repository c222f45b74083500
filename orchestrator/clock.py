"""The local clock, for display and timeouts only: what is stored comes from the server's."""

import time


def now_ms() -> int:
    """Milliseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1_000_000
