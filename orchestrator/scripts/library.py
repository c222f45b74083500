"""The scripts' library on a server: how it gets there, and how older ones go."""

import contextlib
import random
from typing import Any

from redis import exceptions as redis_errors

import lua

MISSING = "Function not found"
"""What a server says that does not have a function."""

KEPT_BESIDE = 1
"""So many other versions stay: while one takes over, two are in use. Nobody knows which, so chance decides who goes;
who is still in use is loaded again, with its next call, and the unused one goes in the end."""


def is_missing(problem: object) -> bool:
    """Whether a server did not have the function that was called."""
    return isinstance(problem, redis_errors.ResponseError) and MISSING in str(problem)


async def load(node: Any) -> None:
    """Give a server the library, unless somebody else just did."""
    library = lua.library()
    try:
        await node.execute_command("FUNCTION", "LOAD", library.text)
    except redis_errors.ResponseError as problem:
        if "already exists" not in str(problem):
            raise
        return
    with contextlib.suppress(redis_errors.ResponseError):  # who may load is perhaps not allowed to look, or to delete
        others = await _libraries(node) - {library.name}
        for other in random.sample(sorted(others), max(len(others) - KEPT_BESIDE, 0)):
            await node.execute_command("FUNCTION", "DELETE", other)


async def _libraries(node: Any) -> set[str]:
    listed = await node.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"{lua.PREFIX}*")
    return {each[b"library_name"].decode() if isinstance(each, dict) else each[1].decode() for each in listed}
