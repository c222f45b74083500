"""The queue without async: complete, in any thread, after a fork, and gone without a trace at the end."""

import ast
import gc
import inspect
import subprocess
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from orchestrator import queue as asynchronous
from orchestrator import sync_writer
from orchestrator.errors import InvalidOption, JobNotFound, OutcomeUnknown
from orchestrator.job import JobOptions, JobState
from orchestrator.sync import Queue, background

ROOT = Path(__file__).parents[2]
ADVICE = "run `python -m orchestrator.sync_writer` (or `make format`) and commit what it wrote"


@pytest.mark.parametrize(("file", "source"), sync_writer.CLASSES.items())
def test_what_is_written_is_what_the_asynchronous_class_says(file: str, source: tuple[str, str]) -> None:
    wanted = ast.parse(sync_writer.write(*source))
    written = ast.parse((sync_writer.FOLDER / file).read_text())
    missing = {each.name for each in _methods(wanted)} - {each.name for each in _methods(written)}
    assert not missing, f"orchestrator/sync/{file} lacks {', '.join(sorted(missing))}: {ADVICE}"
    for one, other in zip(_methods(wanted), _methods(written), strict=True):
        assert ast.dump(one) == ast.dump(other), f"orchestrator/sync/{file}: {one.name} is another now: {ADVICE}"


def _methods(tree: ast.Module) -> list[ast.FunctionDef]:
    (class_,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [node for node in class_.body if isinstance(node, ast.FunctionDef)]


def test_every_public_method_is_there_and_takes_the_same() -> None:
    public = [name for name in dir(asynchronous.Queue) if not name.startswith("_")]
    assert set(public) <= set(dir(Queue)), ADVICE
    for name in public:
        theirs = inspect.signature(getattr(asynchronous.Queue, name)).parameters
        assert list(inspect.signature(getattr(Queue, name)).parameters) == list(theirs), name


def test_jobs_are_added_read_steered_and_removed(url: str, queue_name: str) -> None:
    with Queue(queue_name, url, default_job_options=JobOptions(priority=5)) as queue:
        job = queue.add("paint", {"of": "a cat"})
        assert queue.name == queue_name
        assert queue.get_job(job.id) == job
        assert job.priority == 5
        assert queue.change_priority(job.id, 7).priority == 7
        assert queue.get_counts()["waiting"] == 1
        assert [each.id for each in queue.get_jobs([JobState.WAITING])] == [job.id]
        queue.pause()
        assert queue.is_paused()
        assert queue.get_metrics("added").total == 1
        assert queue.remove(job.id)
        with pytest.raises(JobNotFound):
            queue.cancel(job.id)
        with pytest.raises(InvalidOption, match="attempts"):
            queue.add("paint", None, JobOptions(attempts=0))


def test_many_threads_share_a_queue(url: str, queue_name: str) -> None:
    before = threading.active_count()
    with Queue(queue_name, url) as queue, ThreadPoolExecutor(16) as threads:
        ids = {job.id for job in threads.map(lambda n: queue.add("paint", n), range(200))}
        assert len(ids) == 200
        assert queue.get_counts()["waiting"] == 200
    assert threading.active_count() <= before + 1  # the one thread of all queues


def test_a_closed_queue_opens_again_with_its_next_call(url: str, queue_name: str) -> None:
    queue = Queue(queue_name, url)
    queue.close()
    queue.add("paint")
    queue.close()
    queue.close()
    assert queue.get_counts()["waiting"] == 1
    queue.close()


def test_queues_that_nobody_holds_are_closed(url: str, queue_name: str) -> None:
    for _ in range(20):
        Queue(queue_name, url).add("paint")
    gc.collect()
    opened = background.background()._opened
    for _ in range(100):
        with Queue(queue_name, url) as queue:
            queue.get_counts()  # the loop closes meanwhile
        if not [each for each in opened if each.name == queue_name]:
            return
    pytest.fail(f"still open: {opened}")


def test_an_unreachable_server_is_an_error_after_the_deadline(queue_name: str) -> None:
    with Queue(queue_name, "redis://127.0.0.1:9", deadline_s=0.1) as queue, pytest.raises(OutcomeUnknown):
        queue.get_counts()


def test_a_call_has_the_context_of_its_caller(url: str, queue_name: str) -> None:
    mine: ContextVar[str] = ContextVar("mine", default="")
    mine.set("here")
    with Queue(queue_name, url) as queue:
        assert queue._ask(lambda _: mine.get()) == "here"


async def test_it_can_be_called_where_a_loop_runs(url: str, queue_name: str) -> None:
    with Queue(queue_name, url) as queue:
        assert queue.add("paint").state is JobState.WAITING


def run_script(url: str, queue_name: str, body: str) -> str:
    """Run a script of its own, all warnings as errors; returns what it printed. Nothing may go to stderr."""
    code = f"from orchestrator.sync import Queue\nqueue = Queue({queue_name!r}, {url!r})\n{textwrap.dedent(body)}"
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def test_a_script_that_closes_nothing_ends_quietly(url: str, queue_name: str) -> None:
    assert run_script(url, queue_name, "print(queue.add('paint').state)") == "waiting\n"


def test_a_script_that_closes_ends_quietly(url: str, queue_name: str) -> None:
    body = """
    with queue:
        print(queue.add('paint').state)
    """
    assert run_script(url, queue_name, body) == "waiting\n"


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_fork_goes_on_with_connections_of_its_own(url: str, queue_name: str, end: str) -> None:
    body = f"""
    import os, sys, warnings
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of fork beside threads
    queue.add('paint')
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            for _ in range(20):
                queue.add('paint')
            assert queue.get_counts()["waiting"] > 20
            {end}
        children.append(child)
        queue.add('paint')
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    print(queue.get_counts()["waiting"])
    """
    assert run_script(url, queue_name, body) == "64\n"


def test_a_fork_while_other_threads_call_does_not_hang(url: str, queue_name: str) -> None:
    body = """
    import os, threading, warnings
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    stop = threading.Event()
    def work():
        while not stop.is_set():
            queue.get_counts()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for _ in range(10):
        child = os.fork()
        if not child:
            queue.add('paint')
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
    print(queue.get_counts()["waiting"])
    """
    assert run_script(url, queue_name, body) == "10\n"


def test_a_fork_while_the_loop_imports_does_not_hang(tmp_path: Path, url: str, queue_name: str) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(0.3)")
    body = f"""
    import os, sys, threading, warnings
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.path.insert(0, {str(tmp_path)!r})
    begun = threading.Event()
    def load(_):
        begun.set()
        import slow_to_import
    thread = threading.Thread(target=queue._ask, args=(load,))
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        load(None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    """
    assert run_script(url, queue_name, body) == ""


def test_multiprocessing_can_fork_it(url: str, queue_name: str) -> None:
    body = """
    import multiprocessing, warnings
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    queue.add('paint')
    processes = [multiprocessing.get_context('fork').Process(target=queue.add, args=('paint',)) for _ in range(4)]
    for process in processes: process.start()
    for process in processes: process.join()
    print(queue.get_counts()["waiting"], [process.exitcode for process in processes])
    """
    assert run_script(url, queue_name, body) == "5 [0, 0, 0, 0]\n"


# ── the writer ───────────────────────────────────────────────────────────────────────────────────────


SOURCE = '''
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal as Number

LIMIT = 3


class Parent:
    def __init__(self, name: str, redis: "str | Number" = "x") -> None:
        self.name = name

    async def inherited(self, *names: str, n: "Number", **rest: int) -> "list[Number]":
        """Two lines.

        The second.
        """
        return []


class Thing(Parent):
    def at_once(self, items: Sequence[int] = (), most: int = LIMIT) -> int:
        return len(items) + most

    @property
    def size(self) -> int:
        return 5

    async def stream(self) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def close(self) -> None: ...

    async def _hidden(self) -> None: ...
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "things_to_translate.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "things_to_translate", raising=False)
    return "things_to_translate"


def test_every_kind_of_method_is_translated(module: str) -> None:
    text = sync_writer.write(module, "Thing")
    written = types.ModuleType("written")
    exec(compile(text, "written", "exec"), written.__dict__)
    thing: Any = written.Thing("me")
    assert thing.name == "me"
    assert thing.inherited("a", n=1, x=2) == []
    assert thing.at_once([1, 2]) == 5
    assert thing.size == 5
    assert list(thing.stream()) == [0, 1, 2]
    thing.close()
    assert "_hidden" not in text
    assert "redis: str='x'" in text
    assert "from decimal import Decimal as Number" in text
    assert "-> Iterator[int]" in text
    assert '"""Two lines.\n\n        The second.\n        """' in text


def test_what_cannot_be_translated_says_so(module: str, tmp_path: Path) -> None:
    with (tmp_path / f"{module}.py").open("a") as file:
        file.write("\n    @staticmethod\n    def odd() -> None: ...\n")
    with pytest.raises(NotImplementedError, match=r"odd is decorated by \['staticmethod'\]"):
        sync_writer.write(module, "Thing")
