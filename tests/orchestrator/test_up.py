"""What `kargah up` decides before and while it starts the processes."""

import errno
import io
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.cli import up
from orchestrator.cli.up import LOCAL_PROFILE, check_named_server, free_port, programs
from orchestrator.embedded import EmbeddedServer
from orchestrator.errors import StartFailed
from orchestrator.queue import Queue
from orchestrator.settings import Settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LOCAL_PROFILE:
        monkeypatch.delenv(name, raising=False)


def test_the_store_starts_first_then_the_api_then_who_works(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        found = programs(Settings(data_dir=tmp_path, port=8123), server)
        assert [(program.name, program.stage) for program in found] == [
            ("valkey", 0),
            ("api", 1),
            ("worker", 2),
            ("relay", 2),
        ]
        assert {program.env["KARGAH_REDIS_URL"] for program in found[1:]} == {server.url}
        assert {program.env["KARGAH_PORT"] for program in found[1:]} == {"8123"}


def test_with_a_named_server_none_is_started() -> None:
    found = programs(Settings(redis_url="redis://elsewhere", port=8123), None)
    assert [program.name for program in found] == ["api", "worker", "relay"]
    assert found[0].env["KARGAH_REDIS_URL"] == "redis://elsewhere"


def test_the_local_profile_yields_to_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARGAH_KEEP_COMPLETED_S", "60")
    env = programs(Settings(redis_url="redis://elsewhere", port=8123), None)[0].env
    assert env["KARGAH_KEEP_COMPLETED_S"] == "60"
    assert env["KARGAH_KEEP_FAILED_S"] == LOCAL_PROFILE["KARGAH_KEEP_FAILED_S"]
    assert env["KARGAH_WEBHOOK_ALLOW_HTTP"] == "true"


def test_a_worker_is_given_the_time_that_its_setting_says() -> None:
    found = {program.name: program for program in programs(Settings(redis_url="redis://x", stop_grace_s=60), None)}
    assert found["worker"].grace_s > 60


def test_port_zero_is_any_free_port() -> None:
    assert free_port(Settings(port=0)) > 1024


def test_a_port_that_is_taken_is_named_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartFailed, match="KARGAH_PORT"):
            free_port(Settings(port=taken.getsockname()[1]))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartFailed, match=r"cannot listen on 192\.0\.2\.1"):
        free_port(Settings(host="192.0.2.1"))


async def test_a_named_server_that_does_not_answer_is_told_at_once(tmp_path: Path, url: str, queue_name: str) -> None:
    await check_named_server(url, queue_name)
    with pytest.raises(StartFailed, match="KARGAH_REDIS_URL does not answer"):
        await check_named_server(f"unix://{tmp_path}/nothing.sock", queue_name)


async def test_data_of_another_layout_are_told_before_anything_works_with_them(queue: Queue, url: str) -> None:
    await queue.client.delete(queue.keys.meta)
    await queue.client.hset(queue.keys.meta, "layout", "1.0")  # as layouts before 5 had it
    with pytest.raises(StartFailed, match=r"layout 1\.0, .* KARGAH_DATA_DIR"):
        await check_named_server(url, queue.name)


SUPERVISING = """
import asyncio, fcntl, os, sys, termios
from orchestrator.cli.up import _signals, show
from orchestrator.supervisor import Program, Supervisor

async def main():
    chatter = Program(name="chatter", argv=["sh", "-c", "while :; do echo chatter; sleep 0.05; done"])
    supervisor = Supervisor([chatter], show)
    with _signals(supervisor):
        await supervisor.run()

if sys.argv[1] == "SIGHUP":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the kernel tells of the end of our own terminal only
asyncio.run(main())
os._exit(0)
"""


@pytest.mark.parametrize("how", ["SIGHUP", "SIGTERM"])
def test_it_stops_when_its_terminal_is_gone(how: str) -> None:
    terminal, side = pty.openpty()
    command = [sys.executable, "-c", SUPERVISING, how]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, start_new_session=True) as process:
        os.close(side)
        try:
            seen = b""
            while seen.count(b"chatter") < 4:
                seen += os.read(terminal, 1000)
            os.close(terminal)
            if how == "SIGTERM":
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)  # lines come and cannot be shown
                process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_line_that_cannot_be_shown_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(errno.ENOSPC, "no space left")
            return super().write(text)

    file = Full()
    monkeypatch.setattr(up, "err", Console(file=file))
    up.show("api", "lost")
    file.is_full = False
    up.show("api", "shown")
    assert file.getvalue() == "api    │ shown\n"
