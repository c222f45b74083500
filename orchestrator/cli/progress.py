"""A generation followed on the terminal: a bar for people, a line for each phase where there is no terminal."""

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from orchestrator.cli.console import err
from orchestrator.client import Client, GenerationView, StreamEvent
from orchestrator.generation import GenerationProgress
from orchestrator.job import JobError, JobState

PHASES = {
    "loading": "loading the model",
    "encoding": "reading the prompt",
    "denoising": "denoising",
    "decoding": "decoding",
    "storing": "storing",
}
BAR = 1000


class EtaColumn(ProgressColumn):
    """The worker's own estimate; better than rich's, which knows nothing of loading and decoding."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("eta", "")), style="dim")


class Follower:
    """Follows one generation to its end. The first Ctrl-C cancels it, the second leaves."""

    def __init__(self, client: Client, generation: GenerationView) -> None:
        self.client = client
        self.id = generation.id
        self.last_id: str | None = None
        self._said = ""
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            EtaColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task = self._progress.add_task("waiting", total=BAR, steps="", eta="")

    def run(self) -> GenerationView:
        """Show what happens until the end. Returns the finished generation."""
        with self._progress:
            try:
                self._follow()
            except KeyboardInterrupt:
                self._say("canceling; Ctrl-C again to leave it")
                generation = self.client.cancel(self.id)
                if not generation.status.is_finished:
                    self._follow()
        finished = self.client.get(self.id)
        if finished.status is JobState.CANCELED:
            self._say(f"canceled{self._where(finished)}")
        return finished

    def _follow(self) -> None:
        for event in self._events():
            match event.type:
                case "snapshot":
                    self._show_snapshot(msgspec.convert(event.data["generation"], GenerationView))
                case "active":
                    self._describe("starting")
                case "progress":
                    self._show(event.data.get("progress"))
                case "delayed":
                    self._retry(event.data)
                case "waiting":
                    self._describe("waiting")
                case "stalled":
                    self._say("the worker was lost; another one will take over")
                case "canceling":
                    self._describe("canceling")

    def _events(self) -> Iterator[StreamEvent]:
        for event in self.client.follow(self.id, self.last_id):
            self.last_id = event.id
            yield event

    def _show_snapshot(self, generation: GenerationView) -> None:
        if generation.progress is not None:
            self._show(msgspec.to_builtins(generation.progress))
        elif not generation.status.is_finished:
            self._describe("waiting" if generation.status is not JobState.ACTIVE else "starting")

    def _show(self, value: Any) -> None:
        progress = msgspec.convert(value, GenerationProgress)
        steps = f"step {progress.step}/{progress.steps}" if progress.steps else ""
        eta = "" if progress.eta_ms is None else f"{progress.eta_ms / 1000:.1f} s left"
        self._describe(PHASES[progress.phase], completed=round(progress.fraction * BAR), steps=steps, eta=eta)

    def _retry(self, data: dict[str, Any]) -> None:
        error, due_at = data.get("error"), data.get("due_at")
        if error is not None:
            problem = msgspec.convert(error, JobError)
            pause_s = max(0, (due_at or 0) - data["at"]) / 1000
            self._say(f"attempt {data['attempt']} failed: {problem.message} ({problem.kind}); next in {pause_s:.1f} s")
        self._describe("waiting")

    def _describe(self, what: str, *, completed: int = 0, steps: str = "", eta: str = "") -> None:
        self._progress.update(self._task, description=what, completed=completed, steps=steps, eta=eta)
        if not err.is_terminal:
            self._say(what)

    def _say(self, line: str) -> None:
        if line != self._said:
            err.print(Text(line))
        self._said = line

    def _where(self, generation: GenerationView) -> str:
        progress = generation.progress
        return f" at step {progress.step}/{progress.steps}" if progress is not None and progress.steps else ""
