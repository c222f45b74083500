"""The inference process: `python -m workers.child PARENT-PID`, spoken to over its standard streams."""

import faulthandler
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from orchestrator.child_process import die_with, take_over_streams
from workers.protocol import (
    Alive,
    Answer,
    Cancel,
    Canceled,
    Command,
    Configure,
    Failed,
    Generate,
    ProtocolError,
    Ready,
    Report,
    Unusable,
    pack,
    read_command,
)

if TYPE_CHECKING:
    from workers.painter import Painter

BEAT_S = 1.0
MAX_MESSAGE_CHARS = 500


class Child:
    """Three threads: the main one infers, one reads commands, one says every second that we are alive.

    The reader is what makes a cancellation heard in the middle of a step, and what ends the process, even one deep
    inside torch, as soon as its worker is gone. Everything that imports torch is imported inside functions: by then
    the streams are taken over, and the heart beats.
    """

    def __init__(self, commands: BinaryIO, reports: BinaryIO) -> None:
        self._commands = commands
        self._reports = reports
        self._sending = threading.Lock()
        self._requests: queue.SimpleQueue[Configure | Generate] = queue.SimpleQueue()
        self._stopped_up_to = 0  # requests are numbered and come one by one, so one number says which are canceled

    def run(self) -> None:
        """Serve until the worker closes the pipe; return only if that is impossible from the start."""
        threading.Thread(target=self._read, daemon=True, name="commands").start()
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        began = time.perf_counter()
        configuration = self._requests.get()
        if not isinstance(configuration, Configure):
            raise ProtocolError("the first frame must be the configuration")
        try:
            painter, ready = _prepare(configuration, began)
        except Exception as problem:
            self._send(Unusable(f"{type(problem).__name__}: {problem}"[:MAX_MESSAGE_CHARS]))
            return
        self._send(ready)
        while True:
            request = self._requests.get()
            if not isinstance(request, Generate):
                raise ProtocolError("a second configuration")
            self._send(self._serve(painter, request))

    def _serve(self, painter: "Painter", request: Generate) -> Answer:
        """Paint, and say how it ended where `Done` does not."""
        from workers.failures import classify
        from workers.painter import Stopped

        try:
            return painter.paint(request, self._send, lambda: request.request <= self._stopped_up_to)
        except Stopped:
            return Canceled(request.request)
        except Exception as problem:
            answer = Failed(request.request, *classify(request.model, problem))
        # Only now, when the traceback no longer holds the tensors, can their memory be given back.
        painter.release()
        return answer

    def _read(self) -> NoReturn:
        try:
            while (command := read_command(self._commands)) is not None:
                self._take(command)
        except Exception:
            traceback.print_exc()
        os._exit(0)  # nothing of ours is worth finishing: the attempt belongs to nobody any more

    def _take(self, command: Command) -> None:
        if isinstance(command, Cancel):
            self._stopped_up_to = command.request
        else:
            self._requests.put(command)

    def _beat(self) -> None:
        while True:
            self._send(Alive())
            time.sleep(BEAT_S)

    def _send(self, report: Report) -> None:
        with self._sending:
            try:
                self._reports.write(pack(report))
                self._reports.flush()
            except BrokenPipeError:
                os._exit(0)


def _prepare(configuration: Configure, began: float) -> tuple["Painter", Ready]:
    """Everything that takes long: imports, the device, the default model."""
    _keep_libraries_quiet(offline=not any(source.is_hub for source in configuration.models.values()))
    from workers.device import open_device
    from workers.failures import classify
    from workers.painter import Painter
    from workers.pipelines import Pipelines

    device = open_device(configuration.device, configuration.threads)
    pipelines = Pipelines(configuration.models, device)
    preload_error = None
    if configuration.preload is not None:
        try:
            pipelines.get(configuration.preload)
        except Exception as problem:  # other models may work; a job for this one will be told why
            _, preload_error = classify(configuration.preload, problem)
    painter = Painter(pipelines, device, configuration.preview_every)
    start_ms = round((time.perf_counter() - began) * 1000)
    return painter, Ready(device.name, device.budget_bytes, start_ms, preload_error)


def _keep_libraries_quiet(offline: bool) -> None:
    """Read by the libraries when they are imported. Prompts must not be logged: diffusers warns with their text."""
    os.environ.update(
        DIFFUSERS_VERBOSITY="error",
        TRANSFORMERS_VERBOSITY="error",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        TOKENIZERS_PARALLELISM="false",
    )
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    """Run the inference process."""
    commands, reports = take_over_streams()
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then stops us
    faulthandler.enable()
    try:
        Child(commands, reports).run()
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # an orderly exit would wait for the thread that reads


if __name__ == "__main__":
    main()
