"""The server process: uvicorn under our limits, our signals and our log."""

import asyncio
import resource
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from orchestrator.api.app import create_app
from orchestrator.api.protocol import LimitedProtocol, Limits
from orchestrator.api.streams import Streams
from orchestrator.log import get_logger
from orchestrator.settings import Settings

log = get_logger("api")

KEEP_ALIVE_S = 15
STOP_S = 4
SPARE_FILES = 256  # for Redis, pictures and the rest, beside the connections
MAX_FILES = 20_000
TRANSFER_FACTOR = 8  # a body of tiny chunks is several times its size on the wire


class Server(uvicorn.Server):
    """uvicorn's server, which ends the open streams when it stops, and leaves with exit status 0."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self.streams = streams

    @property
    def port(self) -> int:
        """The port it listens on, once it does."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say where."""
        await super().startup(sockets)
        if self.started:
            host = self.config.host
            log.info("api.listening", url=f"http://{f'[{host}]' if ':' in host else host}:{self.port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop within `STOP_S`, and a little for the rest."""
        self.streams.stop()
        await super().shutdown(sockets)
        log.info("api.stopped", requests=self.server_state.total_requests)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """SIGTERM and SIGINT stop the server; unlike uvicorn's, they are not raised again afterwards."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def make_server(settings: Settings, limits: Limits | None = None) -> Server:
    """The server of these settings, ready to run."""
    app = create_app(settings)
    limits = limits or Limits(
        receive_s=settings.receive_timeout_s,
        body_bytes=settings.body_limit_bytes * TRANSFER_FACTOR,
        connections=_raise_open_files() - SPARE_FILES,
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=LimitedProtocol.with_limits(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    return Server(config, app.state.context.streams)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    make_server(settings).run()


def _raise_open_files() -> int:
    """Each connection is an open file, and the usual soft limit of 1,024 is for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_FILES if soft == resource.RLIM_INFINITY else min(soft, MAX_FILES)
