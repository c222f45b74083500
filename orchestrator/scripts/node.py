"""A client of one server, whose calls of scripts cost half of what redis-py takes for any command.

Problem: a command costs redis-py's asyncio client about 60 µs, most of it spent on locks that nobody waits for, on
measuring, on packing in Python, and on a task of its own for each write. Choice: the same pool and connections, past
what a script does not need. Price: two lists of the pool and the writer of a connection are named here.
"""

from typing import Any

from hiredis import pack_command
from redis.asyncio import BlockingConnectionPool, Redis

MAX_AT_ONCE = 64 * 1024
"""Bytes of a call that are written without waiting until they are gone: its answer is waited for anyway."""


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
    """Every command as redis-py does it, but scripts."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command and return its answer."""
        client: Any = super()  # the same
        if args[0] != "FCALL":
            return await client.execute_command(*args, **options)
        pool: Any = self.connection_pool
        connection = await pool.get_connection()
        try:
            call = pack_command(args)
            if len(call) > MAX_AT_ONCE:
                await connection.send_packed_command(call)
            else:
                await connection.check_health()
                connection._writer.write(call)
            return await connection.read_response()
        finally:
            await pool.release(connection)
