"""The connection that all scripts of a client share: whose answer is whose, and what happens when it ends."""

import asyncio
import gc
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from redis import exceptions as redis_errors

from orchestrator.errors import OutcomeUnknown
from orchestrator.queue import Queue
from orchestrator.scripts import connect, drop_connections, end_tasks
from orchestrator.scripts.node import NodeClient
from orchestrator.scripts.shared import SharedConnection
from tests.conftest import wait_until
from tests.faultproxy import FaultProxy
from tests.servers import Server

LIBRARY = """#!lua name=of_test_node
redis.register_function('test_echo', function(KEYS, ARGV) return ARGV[1] end)
redis.register_function('test_size', function(KEYS, ARGV) return #ARGV[1] end)
redis.register_function('test_fail', function(KEYS, ARGV) return redis.error_reply(ARGV[1]) end)
redis.register_function('test_nested', function(KEYS, ARGV) return {'a', redis.error_reply(ARGV[1]), {'b'}} end)
"""

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def node(server: Server) -> Server:
    """A server that has the functions of this test."""
    server.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    return server


@pytest.fixture
async def proxy(node: Server, runtime_folder: Path) -> AsyncIterator[FaultProxy]:
    """What is between."""
    async with FaultProxy(runtime_folder / "node.sock", node.socket) as proxy:
        yield proxy


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Any]:
    client = connect(url, **options)
    try:
        yield client
    finally:
        await client.aclose()


async def echo(client: Any, word: object, **options: Any) -> bytes:
    answer: bytes = await client.execute_command("FCALL", "test_echo", 0, word, **options)
    return answer


async def own(client: Any) -> SharedConnection:
    """The client's connection, once it is there."""
    await echo(client, "x")
    shared: SharedConnection = client._shared[asyncio.get_running_loop()]
    return shared


async def in_flight(client: Any, count: int) -> list[asyncio.Task[bytes]]:
    """Calls that were written and have no answer."""
    shared = client._shared[asyncio.get_running_loop()]
    tasks = [asyncio.create_task(echo(client, number)) for number in range(count)]
    await wait_until(lambda: len(shared._calls) == count)
    return tasks


# ── whose answer is whose ────────────────────────────────────────────────────────────────────────────


async def test_many_calls_share_a_connection_and_each_gets_its_own_answer(proxy: FaultProxy) -> None:
    async with client_of(proxy.url) as client:
        answers = await asyncio.gather(*(echo(client, number) for number in range(500)))
        assert answers == [b"%d" % number for number in range(500)]
        assert len(proxy._writers) == 1, "who came while it was connecting waited for it"


async def test_a_caller_that_is_cancelled_leaves_its_answer_to_nobody(proxy: FaultProxy) -> None:
    async with client_of(proxy.url) as client:
        shared = await own(client)
        async with proxy.blackhole():
            tasks = await in_flight(client, 10)
            await end_tasks(*tasks[::2])
        assert await asyncio.gather(*tasks[1::2]) == [b"1", b"3", b"5", b"7", b"9"]
        assert await own(client) is shared


async def test_a_caller_whose_time_is_over_leaves_alone(proxy: FaultProxy) -> None:
    async with client_of(proxy.url) as client:
        shared = await own(client)
        async with proxy.blackhole():
            (other,) = await in_flight(client, 1)
            with pytest.raises(TimeoutError):
                await echo(client, "x", until=asyncio.get_running_loop().time() + 0.05)
        assert await other == b"0"
        assert await own(client) is shared


async def test_at_most_as_many_calls_are_on_their_way_as_the_pool_has_connections(proxy: FaultProxy) -> None:
    async with client_of(proxy.url, max_connections=3) as client:
        shared = await own(client)
        async with proxy.blackhole():
            tasks = await in_flight(client, 3)
            tasks += [asyncio.create_task(echo(client, number)) for number in range(3, 50)]
            with pytest.raises(TimeoutError):
                await echo(client, "late", until=asyncio.get_running_loop().time() + 0.05)
            assert len(shared._calls) == 3
            await end_tasks(tasks.pop(20))
        assert await asyncio.gather(*tasks) == [b"%d" % number for number in range(50) if number != 20]


@pytest.mark.parametrize("loop", LOOPS)
def test_large_calls_do_not_pile_up(node: Server, runtime_folder: Path, loop: str) -> None:
    async def run() -> None:
        async with FaultProxy(runtime_folder / "large.sock", node.socket) as proxy, client_of(proxy.url) as client:
            shared = await own(client)
            size = 1024 * 1024
            async with proxy.blackhole():
                calls = [
                    asyncio.create_task(client.execute_command("FCALL", "test_size", 0, b"x" * (size + number)))
                    for number in range(20)
                ]
                await wait_until(lambda: shared._is_held_up)
                assert len(shared._calls) <= 2, "what the sockets' own buffers took, and one more"
                assert shared._transport.get_write_buffer_size() <= size + 2000
            assert await asyncio.gather(*calls) == [size + number for number in range(20)]

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


# ── what a server answers ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    "text",
    [
        "ERR something",
        "JOB_NOT_FOUND there is no job a",
        "NOSCRIPT No matching script",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MOVED 3999 127.0.0.1:6381",
        "ASK 3999 127.0.0.1:6381",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down",
        "NOPERM this user has no permissions",
        "BUSY Redis is busy running a script.",
        "LOADING Redis is loading the dataset in memory",
        "NOAUTH Authentication required.",
    ],
)
async def test_errors_are_those_of_redis_py(node: Server, text: str, protocol: int) -> None:
    async with client_of(f"{node.url}?protocol={protocol}") as client:
        shared = await own(client)
        with pytest.raises(redis_errors.RedisError) as raised:
            await client.execute_command("FCALL", "test_fail", 0, text)
        with pytest.raises(redis_errors.RedisError) as wanted:
            await client.execute_command("EVAL", "return redis.error_reply(ARGV[1])", 0, text)
        assert type(raised.value) is type(wanted.value)
        assert str(raised.value) == str(wanted.value)
        assert shared.is_open is not isinstance(raised.value, redis_errors.ConnectionError)
        assert await echo(client, "x") == b"x"


async def test_an_error_within_a_list_is_a_value(node: Server) -> None:
    async with client_of(node.url) as client:
        first, error, last = await client.execute_command("FCALL", "test_nested", 0, "OOM full")
        assert (first, last) == (b"a", [b"b"])
        assert type(error) is redis_errors.OutOfMemoryError


@asynccontextmanager
async def scripted(
    folder: Path, *answers: bytes, timeout_s: float = 5.0, pause_s: float = 0.0
) -> AsyncIterator[SharedConnection]:
    """A connection to a server that answers so, whatever it is asked; with `pause_s`, byte by byte."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.read(1000)
            for byte in answer if pause_s else ():
                await asyncio.sleep(pause_s)
                writer.write(bytes([byte]))
            writer.write(b"" if pause_s else answer)
        await reader.read(1000)
        writer.close()

    path = folder / "scripted.sock"
    async with await asyncio.start_unix_server(serve, path):
        reader, writer = await asyncio.open_unix_connection(path)
        shared = SharedConnection(SimpleNamespace(_reader=reader, _writer=writer, socket_timeout=timeout_s), 10)
        yield shared
        await shared.close()


async def test_push_messages_are_nobodys_answer(runtime_folder: Path) -> None:
    push = b">2\r\n+invalidate\r\n*1\r\n$3\r\nkey\r\n"
    async with scripted(runtime_folder, push + b"+a\r\n" + push[:9], push[9:] + b"+b\r\n" + push) as shared:
        assert await shared.call(b"1", None) == b"a"
        assert await shared.call(b"2", None) == b"b"


async def test_a_long_answer_takes_its_time(runtime_folder: Path) -> None:
    async with scripted(runtime_folder, b"$9\r\nslow bits\r\n", b"+b\r\n", timeout_s=0.3, pause_s=0.05) as shared:
        assert await shared.call(b"1", None) == b"slow bits"  # in 0.75 s
        assert await shared.call(b"2", None) == b"b"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n", b"+a\r\n+nobody asked for this\r\n"])
async def test_a_connection_that_makes_no_sense_is_left(runtime_folder: Path, answer: bytes) -> None:
    async with scripted(runtime_folder, answer) as shared:
        call = asyncio.ensure_future(shared.call(b"1", None))
        await wait_until(lambda: not shared.is_open)
        if answer.startswith(b"+a"):
            assert await call == b"a"
        else:
            with pytest.raises(redis_errors.ConnectionError, match="Protocol error"):
                await call
        with pytest.raises(redis_errors.ConnectionError):
            await shared.call(b"2", None)


# ── its end ──────────────────────────────────────────────────────────────────────────────────────────


async def test_all_who_wait_learn_that_the_connection_is_lost_and_the_next_call_makes_another(
    proxy: FaultProxy,
) -> None:
    async with client_of(proxy.url, max_connections=5) as client:
        shared = await own(client)
        async with proxy.blackhole():
            tasks = await in_flight(client, 5)
            tasks += [asyncio.create_task(echo(client, "later")) for _ in range(5)]
            await asyncio.sleep(0)
            proxy.cut()
            found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {redis_errors.ConnectionError}
        assert len({id(each) for each in found}) == len(found), "each adds its own traceback to its own"
        assert await own(client) is not shared


async def test_a_server_that_falls_silent_is_left(proxy: FaultProxy) -> None:
    async with client_of(proxy.url, timeout_s=0.2) as client:
        await own(client)
        loop = asyncio.get_running_loop()
        for _ in range(2):
            proxy.freeze()
            began = loop.time()
            tasks = await in_flight(client, 5)
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in found} == {redis_errors.TimeoutError}
            assert 0.15 < loop.time() - began < 5
            assert await echo(client, "x") == b"x"


async def test_a_call_is_answered_as_long_as_it_takes_where_there_is_no_limit(proxy: FaultProxy) -> None:
    async with client_of(proxy.url, timeout_s=None) as client:
        shared = await own(client)
        async with proxy.blackhole():
            (call,) = await in_flight(client, 1)
            assert shared._watch is None
        assert await call == b"0"


async def test_a_caller_that_left_does_not_keep_a_silent_connection(proxy: FaultProxy) -> None:
    async with client_of(proxy.url, timeout_s=0.2) as client:
        shared = await own(client)
        proxy.freeze()
        await end_tasks(*await in_flight(client, 1))
        await wait_until(lambda: not shared.is_open)
        assert await echo(client, "x") == b"x"


async def test_the_outcome_is_unknown_when_the_deadline_comes_before_the_connections_own(
    proxy: FaultProxy, queue_name: str
) -> None:
    async with client_of(proxy.url) as client:
        await Queue(queue_name, client).get_counts()
        queue = Queue(queue_name, client, deadline_s=0.2)
        async with proxy.blackhole():
            with pytest.raises(OutcomeUnknown, match=r"get_counts within 0\.2 s"):
                await queue.get_counts()


async def test_lost_answers_are_asked_for_again(proxy: FaultProxy, queue_name: str) -> None:
    async with Queue(queue_name, proxy.url) as queue:
        await queue.get_counts()
        async with proxy.blackhole():
            calls = [asyncio.create_task(queue.add("paint")) for _ in range(3)]
            calls[1:] = [asyncio.create_task(queue.add("paint")) for _ in range(3)]
            await asyncio.sleep(0)
            proxy.cut()
        await asyncio.gather(*calls)


async def test_dropped_connections_are_made_anew(node: Server) -> None:
    async with client_of(node.url) as client:
        shared = await own(client)
        await drop_connections(client)
        assert not shared.is_open
        assert await own(client) is not shared


async def test_a_closed_client_has_no_connection_and_may_be_used_again(proxy: FaultProxy) -> None:
    async with client_of(proxy.url) as client:
        for _ in range(2):
            await own(client)
            async with proxy.blackhole():
                (call,) = await in_flight(client, 1)
                await client.aclose()
                with pytest.raises(redis_errors.ConnectionError):
                    await call
            await wait_until(lambda: not proxy._writers)


async def test_who_waits_for_a_connection_when_the_client_is_closed_is_told(proxy: FaultProxy) -> None:
    async with client_of(f"{proxy.url}?protocol=3") as client:
        async with proxy.blackhole():
            tasks = [asyncio.create_task(echo(client, "x")) for _ in range(3)]
            await wait_until(lambda: bool(proxy._writers))
            await client.aclose()
            found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {redis_errors.ConnectionError}


async def test_a_server_that_is_not_there_tells_each_for_itself(runtime_folder: Path) -> None:
    async with client_of(f"unix://{runtime_folder}/nobody") as client:
        found = await asyncio.gather(*(echo(client, "x") for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in found} == {redis_errors.ConnectionError}
    assert len({id(each) for each in found}) == 3


async def test_who_stops_waiting_for_a_connection_takes_it_from_nobody(proxy: FaultProxy) -> None:
    async with client_of(f"{proxy.url}?protocol=3") as client:
        async with proxy.blackhole():
            first, second = (asyncio.create_task(echo(client, "x")) for _ in range(2))
            await wait_until(lambda: bool(proxy._writers))
            await end_tasks(first)
            with pytest.raises(TimeoutError):
                await echo(client, "x", until=asyncio.get_running_loop().time() + 0.05)
        assert await second == b"x"


async def test_a_client_that_nobody_has_any_more_leaves_its_connection(proxy: FaultProxy) -> None:
    client: Any = NodeClient.from_pool(connect(proxy.url).connection_pool)
    await own(client)
    del client
    gc.collect()
    await wait_until(lambda: not proxy._writers)


# ── loops, processes, networks ───────────────────────────────────────────────────────────────────────


async def test_each_event_loop_has_its_own_connection(proxy: FaultProxy) -> None:
    async with client_of(proxy.url) as client:
        shared = await own(client)
        found: list[SharedConnection] = []

        async def there() -> None:
            found.append(await own(client))
            await found[0].close()

        thread = threading.Thread(target=lambda: asyncio.run(there()))
        thread.start()
        await wait_until(lambda: not thread.is_alive())
        assert found[0] is not shared
        assert await own(client) is shared
        assert len(client._shared) == 2
        await drop_connections(client)
        await own(client)
        assert len(client._shared) == 1, "that of a loop that has ended is forgotten"


def test_a_forked_process_leaves_the_connection_to_its_parent(node: Server) -> None:
    body = f"""
import asyncio, os, sys
from orchestrator.scripts import connect

async def echo(word):
    return await client.execute_command("FCALL", "test_echo", 0, word)

client = connect({node.url!r})
loop = asyncio.new_event_loop()
loop.run_until_complete(echo("parent"))
shared = client._shared[loop]
child = os.fork()
if not child:
    assert not client._shared and not shared.is_open
    own = asyncio.new_event_loop()
    assert own.run_until_complete(echo("child")) == b"child"
    own.run_until_complete(client.aclose())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert loop.run_until_complete(echo("parent")) == b"parent"
assert client._shared[loop] is shared
loop.run_until_complete(client.aclose())
"""
    subprocess.run([sys.executable, "-c", body], check=True, timeout=60)


@pytest.fixture(scope="session")
def certificate(runtime_folder: Path) -> Path:
    """A certificate for localhost and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program")
    path = runtime_folder / "node.pem"
    how = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    command = [openssl, *how.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", str(path)]
    made = subprocess.run([*command, "-out", "-"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + made.stdout)
    return path


@asynccontextmanager
async def listening(target: Path, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """The port of what passes everything on to a unix socket."""

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        server_reader, server_writer = await asyncio.open_unix_connection(target)
        await asyncio.gather(passing(reader, server_writer), passing(server_reader, writer), return_exceptions=True)
        server_writer.close()
        accepted.remove(writer)

    accepted: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(accept, "localhost", 0, ssl=tls) as proxy:
        yield proxy.sockets[0].getsockname()[1]
        await wait_until(lambda: not accepted)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("network", ["unix", "tcp", "tls"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_it_is_made_as_redis_py_makes_them(
    node: Server, certificate: Path, loop: str, network: str, protocol: int
) -> None:
    node.ask("ACL", "SETUSER", "painter", "on", ">s3cret", "~*", "+@all")

    async def calls(url: str) -> None:
        async with client_of(url) as client:
            large = b"x" * 3_000_000
            answers = await asyncio.gather(*(echo(client, word) for word in ("a", large, "b")))
            assert answers == [b"a", large, b"b"]
            (mine,) = [each for each in await client.client_list() if each["cmd"] == "fcall" and each["name"] == "me"]
            assert (mine["user"], mine["db"], mine["resp"]) == ("painter", "3", str(protocol))
            tasks = [asyncio.create_task(echo(client, number)) for number in range(5)]
            await asyncio.gather(*tasks)

    async def run() -> None:
        options = f"protocol={protocol}&client_name=me"
        if network == "unix":
            await calls(f"unix://painter:s3cret@{node.socket}?db=3&{options}")
            return
        tls = None
        if network == "tls":
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate)
            options += f"&ssl_ca_certs={certificate}"
        async with listening(node.socket, tls) as port:
            await calls(f"{'rediss' if tls else 'redis'}://painter:s3cret@localhost:{port}/3?{options}")

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())
