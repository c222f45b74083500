"""A client of Redis Cluster and Valkey Cluster: sends every command to the node that has its key.

Problem: redis-py's asyncio cluster client fails when its pool is at its limit instead of waiting, sends ASKING on a
connection that another task may take, closes everybody's connections when it learns of a move, and before 8 has no
Pub/Sub. Choice: the plain client, once per node, and the few lines that find the node. Price: these lines are ours; and
commands whose keys lie in several slots, and pipelines, are not there.
"""

import asyncio
import bisect
import random
from typing import Any, NamedTuple

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.crc import key_slot

from orchestrator.errors import InvalidOption
from orchestrator.scripts.library import is_missing, load
from orchestrator.scripts.node import NodeClient, NodePool

SCHEMES = ("redis+cluster://", "rediss+cluster://")
MAX_REDIRECTIONS = 5

_OF_A_NODE = frozenset({"DBSIZE", "FLUSHALL", "FLUSHDB", "FUNCTION", "KEYS", "RANDOMKEY", "SCAN", "WAIT", "WAITAOF"})
_OF_ANY_NODE = frozenset({"ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "ECHO", "INFO", "PING", "PUBLISH", "TIME"})
_LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ClusterDownError, OSError)


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int


class ClusterClient(Redis):
    """All nodes of a cluster as one client; those of its methods work that send one command about keys of one slot.

    url: `redis+cluster://[user:password@]host:port[,host:port …]`, `rediss+cluster://` with TLS. options: those of
    each node's connection pool.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        self._plain_url, self._seeds = _read_url(url)
        self._nodes: dict[Address, Any] = {}  # clients of redis-py, whose types say too little
        self._firsts: list[int] = []  # first slots of the ranges, in order, and beside them their owners
        self._owners: list[Address] = []
        self._moved: dict[int, Address] = {}
        self._failed: Address | None = None
        self._is_stale = True
        self._views = 0
        self._looking = asyncio.Lock()
        super().__init__(connection_pool=self._node(self._seeds[0]).connection_pool)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to all nodes."""
        nodes = list(self._nodes.values())
        self._nodes.clear()
        self._is_stale = True
        for node in nodes:
            await node.aclose(close_connection_pool=True)

    def drop_connection(self) -> None:
        """As that of each node."""
        for node in self._nodes.values():
            node.drop_connection()

    async def execute_command(self, *args: Any, only_reads: bool = False, **options: Any) -> Any:
        """Send a command to the node of its key, and after it when the slot has moved or is moving."""
        slot = _slot_of(args)
        address = await self._owner(slot)
        for _ in range(MAX_REDIRECTIONS):
            try:
                return await self._node(address).execute_command(*args, only_reads=only_reads, **options)
            except redis_errors.MovedError as moved:  # a subclass of AskError
                address = self._moved[moved.slot_id] = Address(moved.host or address.host, moved.port)
            except redis_errors.AskError as ask:
                return await self._ask(Address(ask.host or address.host, ask.port), args, options)
            except _LOST:
                self._failed, self._is_stale = address, True
                raise
        raise redis_errors.ClusterError(f"slot {slot} was not found in {MAX_REDIRECTIONS} redirections")

    def pipeline(self, *args: Any, **options: Any) -> Any:
        """Not here: its commands may belong to several nodes."""
        raise redis_errors.RedisClusterException("a cluster has no pipelines here; ask find_node for a node's client")

    def pubsub(self, **options: Any) -> Any:
        """Not here: a subscription is to one node."""
        raise redis_errors.RedisClusterException("subscribe at a node; ask find_node for its client")

    async def find_node(self, key: str) -> Redis:
        """The client of the node that has `key` now, for what a command cannot do, like subscribing."""
        self._is_stale = True
        return await self.guess_node(key)

    async def guess_node(self, key: str) -> Redis:
        """The client of the node that had `key` when it was last looked for; where that is over, it answers MOVED."""
        node: Redis = self._node(await self._owner(key_slot(key.encode())))
        return node

    async def _ask(self, address: Address, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """ASKING holds for the next command of its connection only, hence the pipeline."""
        node = self._node(address)
        pipeline = node.pipeline(transaction=False)
        pipeline.execute_command("ASKING")
        pipeline.execute_command(*args, **options)
        _, answer = await pipeline.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            if is_missing(answer):
                await load(node)
                raise redis_errors.TryAgainError(str(answer))
            if isinstance(answer, redis_errors.AskError):  # the slot moved on meanwhile
                raise redis_errors.TryAgainError(str(answer))
            raise answer
        return answer

    # ── who has what ─────────────────────────────────────────────────────────────────────────────────

    async def _owner(self, slot: int | None) -> Address:
        if self._is_stale:
            await self._look()
        if slot is None:
            return random.choice(self._owners)
        if slot in self._moved:
            return self._moved[slot]
        return self._owners[max(bisect.bisect_right(self._firsts, slot) - 1, 0)]

    async def _look(self) -> None:
        """Ask the nodes, the one that failed last, who has which slots; many callers share one look."""
        views = self._views
        async with self._looking:
            if self._views != views:
                return
            known = list(dict.fromkeys([*self._owners, *self._nodes, *self._seeds]))
            random.shuffle(known)
            known.sort(key=lambda address: address == self._failed)
            self._note(*await self._first_view(known))

    async def _first_view(self, known: list[Address]) -> tuple[Address, Any]:
        trouble: Exception | None = None
        for address in known:
            try:
                view = await self._node(address).execute_command("CLUSTER", "SLOTS")
            except (*_LOST, redis_errors.ResponseError) as problem:
                if "cluster support disabled" in str(problem):
                    raise InvalidOption("redis", "the server is no cluster; name it redis://…") from None
                trouble = problem
            else:
                if view:
                    return address, view
        raise trouble or redis_errors.ClusterDownError("no node knows of any slot")

    def _note(self, asked: Address, view: Any) -> None:
        ranges = sorted((int(first), _address(asked, nodes[0])) for first, _, *nodes in view)
        self._firsts = [first for first, _ in ranges]
        self._owners = [owner for _, owner in ranges]
        self._moved.clear()
        self._views += 1
        self._is_stale = False

    def _node(self, address: Address) -> Any:
        if address not in self._nodes:
            place = {"host": address.host, "port": address.port}
            pool = NodePool.from_url(self._plain_url, **self.options)
            pool.connection_kwargs.update(place)
            self._nodes[address] = NodeClient.from_pool(pool)
        return self._nodes[address]


def _read_url(url: str) -> tuple[str, list[Address]]:
    """The URL as it would be of the first node alone, and the nodes it names."""
    scheme, _, rest = url.partition("+cluster://")
    place, slash, path = rest.partition("/")
    credentials, at, hosts = place.rpartition("@")
    seeds = []
    for each in hosts.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise InvalidOption("redis", "a cluster is named redis+cluster://host:port[,host:port …]")
        seeds.append(Address(host.strip("[]"), int(port)))
    if path not in ("", "0") and not path.startswith("?"):
        raise InvalidOption("redis", "a cluster has no databases but 0")
    return f"{scheme}://{credentials}{at}{hosts.split(',')[0].strip()}{slash}{path}", seeds


def _address(asked: Address, node: Any) -> Address:
    """A node that does not know its own name is where the one was that told of it."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return Address(asked.host if host in ("", "?", None) else host, int(node[1]))


def _slot_of(args: tuple[Any, ...]) -> int | None:
    """The slot of a command's (first) key; None for commands that any node can answer."""
    name, *words = str(args[0]).upper().split(" ")
    rest: list[Any] = [*words, *args[1:]]
    if name in _OF_ANY_NODE:
        return None
    if name == "SCAN" and b"MATCH" in rest:
        pattern = str(rest[rest.index(b"MATCH") + 1])
        if "{" in pattern:  # a hash tag: all keys that match lie in one slot
            return key_slot(pattern.encode())
    if name in _OF_A_NODE:
        raise redis_errors.RedisClusterException(f"{name} concerns one node: ask the nodes of the cluster each")
    if name in ("FCALL", "EVAL", "EVALSHA"):
        key = rest[2]
    elif name in ("XREAD", "XREADGROUP"):
        key = rest[rest.index(b"STREAMS") + 1]
    elif name in ("XGROUP", "XINFO", "OBJECT", "MEMORY"):
        key = rest[1]
    else:
        key = rest[0]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
