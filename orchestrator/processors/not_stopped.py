"""The one thing a stopped processor may be: still running."""

import asyncio
from typing import Any


class NotStopped(Exception):
    """The processor was told to stop, and goes on; `ended` is done when it has ended by itself."""

    def __init__(self, ended: "asyncio.Future[Any]") -> None:
        super().__init__("the processor did not stop")
        self.ended = ended
