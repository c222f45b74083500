"""The inference process's own manners, as far as they need no model."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from workers.protocol import Alive, Cancel, pack

ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """An inference process that waits for its configuration."""
    command = [sys.executable, "-m", "workers.child", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        yield process
        process.kill()


def first_frame(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return process.stdout.read(len(pack(Alive())))


def test_it_is_alive_from_the_start_and_ends_with_its_input(child: "subprocess.Popen[bytes]") -> None:
    assert first_frame(child) == pack(Alive())
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(10) == 0


def test_it_ends_when_it_hears_nonsense(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None
    child.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
    child.stdin.flush()
    child.wait(10)


def test_a_cancellation_before_the_configuration_does_no_harm(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None
    child.stdin.write(pack(Cancel(1)))
    child.stdin.flush()
    assert first_frame(child) == pack(Alive())


def test_a_ctrl_c_in_the_terminal_is_left_to_the_worker(child: "subprocess.Popen[bytes]") -> None:
    first_frame(child)
    child.send_signal(signal.SIGINT)
    assert first_frame(child) == pack(Alive())


async def test_it_does_not_outlive_a_worker_that_was_killed() -> None:
    # The pipe is inherited by a third process, so its end says nothing: only the kernel's word ends the child.
    code = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'workers.child', str(os.getpid())]\n"
        "child = subprocess.Popen(command, stdin=sys.stdin, stdout=subprocess.PIPE)\n"
        "child.stdout.read(4)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert is_running(pid)
        worker.kill()
        await wait_until(lambda: not is_running(pid))


def test_it_refuses_a_worker_that_is_not_its_parent() -> None:
    command = [sys.executable, "-m", "workers.child", "1"]
    process = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert process.returncode == 1
    assert b"the worker is gone" in process.stderr


def test_the_workers_own_process_never_imports_torch() -> None:
    code = (
        "import sys, workers.__main__, workers.text_to_image, orchestrator.models;"
        "sys.exit(bool({'torch', 'diffusers', 'transformers', 'PIL'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
