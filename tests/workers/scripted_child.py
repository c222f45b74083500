"""An inference process without inference, to try the worker's side: `scripted_child BEHAVIOUR FILE-OF-STARTS`."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.child_process import take_over_streams
from workers.protocol import (
    Alive,
    Cancel,
    Canceled,
    Configure,
    Denoising,
    Done,
    Generate,
    Loaded,
    Ready,
    Report,
    Step,
    Unusable,
    pack,
    read_command,
)

Say = Callable[[Report], None]


def main(behaviour: str, counter: str) -> None:
    commands, reports = take_over_streams()
    starts = Path(counter)
    starts.write_text(starts.read_text() + "." if starts.exists() else ".")

    def say(report: Report) -> None:
        reports.write(pack(report))
        reports.flush()

    print("a library that prints")
    begin(behaviour, say, len(starts.read_text()))
    while (command := read_command(commands)) is not None:
        match command:
            case Configure() if behaviour != "never-ready":
                say(Ready("cpu", 1000, 1))
            case Generate():
                say(Loaded(command.request, 0))
                obey(behaviour, command, say)
            case Cancel() if behaviour != "ignores-cancel":
                say(Canceled(command.request))


def begin(behaviour: str, say: Say, start: int) -> None:
    match behaviour:
        case "dies-at-first" if start < 3:
            os._exit(3)
        case "unusable":
            say(Unusable("ModuleNotFoundError: No module named 'torch'"))
            os._exit(1)
        case "impatient":
            say(Done(1, 0, 0, False))


def obey(behaviour: str, request: Generate, say: Say) -> None:
    number = request.request
    match behaviour:
        case "good" | "dies-at-first":
            say(Done(number, 1, 1, False))
        case "crawls":
            say(Denoising(number, 0))
            say(Step(number, 0, 1, 1.0))
            beat(say)
        case "leaves":
            os._exit(7)
        case "mixes-up":
            say(Done(number + 1, 1, 1, False))


def beat(say: Say) -> None:
    while True:
        say(Alive())
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
