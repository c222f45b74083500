"""No peer: about the least that a queue on redis-py and Lua can do, as a yardstick. It guarantees nothing.

A job is a hash and its place in a list: INCR, HSET, LPUSH. A worker's call ends one job and fetches the next. `floor`
sends each call by itself, `floor-batched` (by the variable BENCH_NAME) puts those into one pipeline that come up while
another is on its way.
"""

import asyncio
import json
import os
import time
from typing import Any

import redis.asyncio as redis

from bench.contenders.protocol import Contender, Data, Ran, main

BLOCK_S = 2
ADD = """
local ids = {}
for n = 1, #ARGV do
    local id = redis.call('INCR', KEYS[1] .. ':ids')
    redis.call('HSET', KEYS[1] .. ':job:' .. id, 'data', ARGV[n])
    redis.call('LPUSH', KEYS[1] .. ':wait', id)
    ids[n] = id
end
return ids
"""
NEXT = """
if ARGV[2] ~= '' then
    redis.call('ZREM', KEYS[1] .. ':active', ARGV[2])
    redis.call('HSET', KEYS[1] .. ':job:' .. ARGV[2], 'state', 'completed')
end
local id = ARGV[3] ~= '' and ARGV[3] or redis.call('RPOP', KEYS[1] .. ':wait')
if not id then
    return {}
end
redis.call('ZADD', KEYS[1] .. ':active', ARGV[1], id)
return {id, redis.call('HGET', KEYS[1] .. ':job:' .. id, 'data')}
"""


class Floor(Contender):
    """Add; and lanes that finish and fetch in one call."""

    packages = ("redis", "hiredis", "uvloop")
    has_bulk = True

    async def open(self) -> None:
        self.client = redis.Redis.from_url(self.url)
        self.shas = {script: await self.client.script_load(script) for script in (ADD, NEXT)}
        self.pending: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self.sender: asyncio.Task[None] | None = None
        self.is_batching = os.environ.get("BENCH_NAME") == "floor-batched"

    async def add(self, data: Data) -> None:
        await self._call(ADD, json.dumps(data))

    async def add_bulk(self, many: list[Data]) -> None:
        await self._call(ADD, *map(json.dumps, many))

    async def work(self, ran: Ran) -> None:
        await self.open()
        idle = asyncio.Lock()
        await asyncio.gather(*(self._lane(ran, idle) for _ in range(self.concurrency)))

    async def _lane(self, ran: Ran, idle: asyncio.Lock) -> None:
        done: Any = b""
        given: Any = b""
        while True:
            found = await self._call(NEXT, int(time.time() * 1000), done, given)
            done, given = b"", b""
            if found:
                await ran.body(json.loads(found[1]))
                done = found[0]
                continue
            async with idle:
                woken = await self.client.brpop(["bench:wait"], BLOCK_S)
                given = woken[1] if woken else b""

    async def _call(self, script: str, *args: Any) -> Any:
        call = (self.shas[script], 1, "bench", *args)
        if not self.is_batching:
            return await self.client.evalsha(*call)
        answer = asyncio.get_running_loop().create_future()
        self.pending.append((call, answer))
        if self.sender is None:
            self.sender = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        while self.pending:
            batch, self.pending = self.pending, []
            pipeline = self.client.pipeline(transaction=False)
            for call, _ in batch:
                pipeline.evalsha(*call)
            for (_, answer), reply in zip(batch, await pipeline.execute(), strict=True):
                answer.set_result(reply)
        self.sender = None


if __name__ == "__main__":
    main(Floor)
