"""`kargah up`: the whole service on this machine, supervised."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import httpx
import msgspec
from redis.exceptions import RedisError
from rich.console import Console
from rich.text import Text

from orchestrator.cli.console import err, out, service_url
from orchestrator.embedded import SERVER_ENV, EmbeddedServer, check_server
from orchestrator.errors import LayoutMismatch, StartFailed
from orchestrator.queue import Queue
from orchestrator.scripts import connect
from orchestrator.settings import Settings
from orchestrator.supervisor import Program, Supervisor

# What one person's machine wants other than a fleet; whoever sets one of these keeps what they set.
LOCAL_PROFILE = {
    "KARGAH_KEEP_COMPLETED_S": "604800",
    "KARGAH_KEEP_FAILED_S": "604800",
    "KARGAH_WEBHOOK_ALLOW_HTTP": "true",
    "KARGAH_WEBHOOK_ALLOW_NETWORKS": "127.0.0.0/8,::1/128",
}
TAKE_OVER_S = 10.0
COLORS = {"valkey": "blue", "api": "green", "worker": "magenta", "relay": "cyan", "kargah": "bold yellow"}


def up() -> None:
    """Start the whole service: the embedded Valkey, the api, a worker and the relay.

    Prints one URL when all is ready. Whatever dies is restarted. Ctrl-C stops everything cleanly; a second Ctrl-C does
    so at once. Data and pictures are kept in KARGAH_DATA_DIR, so that the next start finds them.

    With KARGAH_REDIS_URL set, that Redis or Valkey is used instead of the embedded one.
    """
    settings = Settings.from_env(LOCAL_PROFILE | _kargah_environment())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_up(settings))


async def _up(settings: Settings) -> None:
    began = time.monotonic()
    with _embedded(settings) as server:
        patience_s = TAKE_OVER_S if server is not None and server.was_killed else 0.0
        settings = msgspec.structs.replace(settings, port=await _free_port(settings, patience_s))
        if server is None:
            await check_named_server(settings.redis_url, settings.queue)
        else:
            await server.end_survivor(lambda line: show("kargah", line))
        supervisor = Supervisor(programs(settings, server), show)
        with _signals(supervisor):
            await supervisor.run(lambda: _announce(settings, time.monotonic() - began))
    show("kargah", "stopped")


def programs(settings: Settings, server: EmbeddedServer | None) -> list[Program]:
    """The processes of the service, in the order of their stages: the store, the api, who works."""
    url = settings.redis_url if server is None else server.url
    env = LOCAL_PROFILE | _kargah_environment()
    env |= {"KARGAH_REDIS_URL": url, "KARGAH_PORT": str(settings.port), "PYTHONUNBUFFERED": "1"}
    python = (sys.executable, "-m")

    async def api_is_ready() -> bool:
        return await _answers(service_url(msgspec.structs.replace(settings, public_url="")) + "/readyz")

    stop_s = settings.stop_grace_s + 5.0
    found = [
        Program(name="api", argv=[*python, "orchestrator.api"], env=env, stage=1, is_ready=api_is_ready),
        Program(
            name="worker",
            argv=[*python, "workers"],
            env=env,
            stage=2,
            ready_line="worker.started",
            grace_s=stop_s,
            hurry_s=1.0,
        ),
        Program(
            name="relay",
            argv=[*python, "webhooks"],
            env=env,
            stage=2,
            ready_line="relay.started",
            grace_s=settings.webhook_timeout_s + 5.0,
            hurry_s=1.0,
        ),
    ]
    if server is not None:

        async def store_is_ready() -> bool:
            return await server.is_ready() and await _is_readable(url, settings.queue)

        store = Program(
            name="valkey",
            argv=server.command(),
            env=SERVER_ENV,
            stage=0,
            is_ready=store_is_ready,
            grace_s=60.0,
            hurry_s=10.0,  # it writes what it has
            pass_fds=(server.lock_fd,),
        )
        found.insert(0, store)
    return found


def free_port(settings: Settings) -> int:
    """The port to listen on, known to be free. Raises `StartFailed` that names the setting."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
            return int(probe.getsockname()[1])
    except OSError as problem:
        raise StartFailed(
            f"cannot listen on {settings.host} port {settings.port}: {problem.strerror or problem}; "
            "is Kargah running already? Choose another port with KARGAH_PORT (0 = any free one)"
        ) from problem


async def check_named_server(url: str, queue: str) -> None:
    """Raise `InvalidOption` for a server that may lose jobs.

    Raises `StartFailed` for one that does not answer, or has the queue in a layout that this version cannot read.
    """
    client = connect(url, max_connections=1)
    try:
        await check_server(client)
    except (RedisError, OSError) as problem:
        raise StartFailed(f"the server of KARGAH_REDIS_URL does not answer: {problem}") from problem
    finally:
        await client.aclose()
    await _is_readable(url, queue)


async def _is_readable(url: str, queue: str) -> bool:
    """True. Raises `StartFailed` where another version wrote the queue."""
    async with Queue(queue, url) as reader:
        try:
            await reader.get_counts()
        except LayoutMismatch as problem:
            raise StartFailed(
                f"{problem}; go on with the version of Kargah that wrote them, or start anew: with another folder in "
                "KARGAH_DATA_DIR, or another server in KARGAH_REDIS_URL"
            ) from problem
    return True


async def _free_port(settings: Settings, patience_s: float) -> int:
    """The same, but an api whose supervisor was killed gets time to stop."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return free_port(settings)
        except StartFailed:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.1)


def show(name: str, line: str) -> None:
    """One line of a process, with its name before it."""
    _print(err, Text.assemble((f"{name:<7}│ ", COLORS.get(name, "")), line))


def _announce(settings: Settings, seconds: float) -> None:
    url = service_url(settings)
    show("kargah", f"everything is ready after {seconds:.1f} s; data are in {settings.data_dir}; Ctrl-C stops")
    _print(out, Text.assemble("\n  Kargah is at ", (url, "bold underline"), "\n"))


def _print(console: Console, text: Text) -> None:
    """Print, or drop what cannot be printed: the service outlives its pipe (rich would leave) and its terminal."""
    try:
        console.print(text)
    except (OSError, SystemExit):
        was_quiet, console.quiet = console.quiet, True
        console.print()  # while quiet, this empties rich's buffer, which would otherwise grow with every line
        console.quiet = was_quiet


def _kargah_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("KARGAH_")}


@contextlib.contextmanager
def _embedded(settings: Settings) -> Iterator[EmbeddedServer | None]:
    if settings.redis_url:
        yield None
    else:
        with EmbeddedServer(settings.data_dir) as server:
            yield server


@contextlib.contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        supervisor.stop()  # first: whatever becomes of the line, we stop
        show("kargah", "stopping; Ctrl-C again to hurry" if stops == 1 else "hurrying")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _answers(url: str) -> bool:
    try:
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            return (await client.get(url)).status_code == 200
    except httpx.HTTPError:
        return False
