"""A client of one server, whose calls of scripts share a connection of their own.

Problem: a command costs redis-py's asyncio client about 60 µs, most of it spent on locks that nobody waits for, on
measuring, on packing in Python, and on a task of its own for each write. Choice: scripts, which may all be sent again,
go through one connection; all else through the pool, past its locks. So do scripts that only read: behind their
answers, which may be long, no other waits. Price: two lists of the pool and the writer of a connection are named here.
"""

import asyncio
import contextlib
import os
import weakref
from typing import Any

from hiredis import pack_command
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from orchestrator.scripts.shared import SharedConnection

Loop = asyncio.AbstractEventLoop


class NodePool(BlockingConnectionPool):
    """A pool that waits at its limit, as its base does; who need not wait takes no lock."""

    _waiting = 0

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection that is ready."""
        pool: Any = super()  # of whose methods redis-py says no types
        if self._available_connections and not self._waiting:
            connection = pool.get_available_connection()
            try:
                await pool.ensure_connection(connection)
            except BaseException:
                await self.release(connection)
                raise
            return connection
        self._waiting += 1
        try:
            return await pool.get_connection()
        finally:
            self._waiting -= 1

    async def release(self, connection: Any) -> None:
        """Give it back."""
        if self._waiting or connection.should_reconnect():
            await super().release(connection)
        else:
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)


class NodeClient(Redis):
    """Every command as redis-py does it, but scripts.

    Those on their way at once are as many as the pool may have connections. Each event loop has its own connection.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shared: dict[Loop, SharedConnection] = {}
        self._connecting: dict[Loop, asyncio.Task[SharedConnection]] = {}
        _clients.add(self)
        weakref.finalize(self, _drop_elsewhere, self._shared).atexit = False

    async def execute_command(
        self, *args: Any, until: float | None = None, only_reads: bool = False, **options: Any
    ) -> Any:
        """Send a command and return its answer.

        until: for a script, when by the loop's clock its caller gets a TimeoutError and leaves.
        """
        if only_reads:
            return await self._read(args)
        if args[0] != "FCALL":
            client: Any = super()  # of whose methods redis-py says no types
            return await client.execute_command(*args, **options)
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None or not shared.is_open:
            shared = await self._connected(loop, until)
        return await shared.call(pack_command(args), until)

    async def _read(self, args: tuple[Any, ...]) -> Any:
        pool: Any = self.connection_pool
        connection = await pool.get_connection()
        try:
            await connection.check_health()
            connection._writer.write(pack_command(args))  # its answer is waited for anyway
            return await connection.read_response()
        finally:
            await pool.release(connection)

    def drop_connection(self) -> None:
        """Let the next script make a new connection; who waits for an answer gets a ConnectionError."""
        shared = self._shared.pop(asyncio.get_running_loop(), None)
        if shared is not None:
            shared.drop()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        loop = asyncio.get_running_loop()
        if connecting := self._connecting.get(loop):
            connecting.cancel()
            await asyncio.wait([connecting])
        if shared := self._shared.pop(loop, None):
            await shared.close()
        _drop_elsewhere(self._shared)
        await super().aclose(close_connection_pool)

    async def _connected(self, loop: Loop, until: float | None) -> SharedConnection:
        """Connect, together with all who want that now; that goes on when they leave."""
        connecting = self._connecting.get(loop)
        if connecting is None:
            connecting = self._connecting[loop] = loop.create_task(self._connect(loop))
            connecting.add_done_callback(self._note_connected)
        async with asyncio.timeout_at(until):
            await asyncio.wait([connecting])
        if connecting.cancelled():
            raise RedisConnectionError("Connection closed.")
        problem = connecting.exception()
        if problem is not None:
            raise type(problem)(*problem.args) from problem  # each its own, to add its own traceback to
        return connecting.result()

    def _note_connected(self, connecting: "asyncio.Task[SharedConnection]") -> None:
        self._connecting.pop(connecting.get_loop(), None)
        if not connecting.cancelled():
            connecting.exception()  # where nobody waits any more, nobody is to be told of it

    async def _connect(self, loop: Loop) -> SharedConnection:
        pool: Any = self.connection_pool
        connection = pool.make_connection()
        try:
            await pool.ensure_connection(connection)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        for ended in [other for other in self._shared if other.is_closed()]:
            del self._shared[ended]
        shared = self._shared[loop] = SharedConnection(connection, pool.max_connections)
        return shared


_clients: "weakref.WeakSet[NodeClient]" = weakref.WeakSet()
_of_parents: list[SharedConnection] = []
"""Connections of the processes we were forked from: kept untouched, since their sockets are shared."""


def _drop_elsewhere(shared: dict[Loop, SharedConnection]) -> None:
    """From outside of their loops, which may run in other threads, or run no more."""
    for loop, connection in shared.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(connection.drop)
    shared.clear()


def _forget() -> None:
    """In a forked process."""
    for client in _clients:
        for shared in client._shared.values():
            shared.forget()
            _of_parents.append(shared)
        client._shared.clear()
        client._connecting.clear()


os.register_at_fork(after_in_child=_forget)
