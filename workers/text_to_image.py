"""The processor of generations: has pictures made by an inference process, tells the watchers, stores the pictures."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from orchestrator.active_job import ActiveJob
from orchestrator.errors import JobCanceled, OutOfMemory, ProcessorError, TransientError, UnrecoverableError
from orchestrator.generation import Generation, GenerationResult, Image
from orchestrator.job import MAX_NAME_CHARS
from orchestrator.log import get_logger
from orchestrator.models import offered_models
from orchestrator.settings import Settings
from orchestrator.storage import Storage, open_storage
from workers.inference import InferenceProcess
from workers.life import Patience, RunningAttempt
from workers.progress import Meter, Pace
from workers.protocol import (
    Answer,
    Canceled,
    Configure,
    Denoising,
    Done,
    Failed,
    Generate,
    Loaded,
    Picture,
    Preview,
    Source,
    Step,
)

log = get_logger("generation")

K = TypeVar("K")
V = TypeVar("V")

MAX_TOLD_MODELS = 8
MAX_REMEMBERED = 1000  # jobs short of memory, and paces of models; the oldest are forgotten


class TextToImage:
    """Runs generations, each on one of the inference processes; as many at once as there are processes.

    What each outcome means for the job is the table in `workers/README.md`.
    """

    def __init__(self, models: Sequence[str], storage: Storage, processes: Sequence[InferenceProcess]) -> None:
        self._models = frozenset(models)
        self._storage = storage
        self._processes = processes
        self._free = list(processes)
        self._some_free = asyncio.Semaphore(len(processes))
        self._last_models: dict[InferenceProcess, str] = {}
        self._short_of_memory: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._paces: OrderedDict[tuple[str, int, int], Pace] = OrderedDict()

    @classmethod
    def from_settings(cls, settings: Settings) -> "TextToImage":
        """The processor that `settings` describe: one inference process for each device, separated by commas."""
        models = offered_models(settings)
        sources = {model.card.id: Source(model.location, model.source == "hub") for model in models}
        patience = Patience(step_s=settings.timeout_s, abandon_s=settings.cancel_grace_ms / 1000)
        processes = [
            InferenceProcess(
                Configure(sources, models[0].card.id, device.strip(), settings.threads, settings.preview_every),
                patience,
            )
            for device in settings.device.split(",")
        ]
        return cls(list(sources), open_storage(settings), processes)

    @property
    def concurrency(self) -> int:
        """How many jobs may run at once."""
        return len(self._processes)

    def warm_models(self) -> list[str]:
        """The models that the processes ran last, which need not be loaded."""
        return list(dict.fromkeys(self._last_models.values()))

    def info(self) -> dict[str, Any]:
        """What the list of workers tells: the devices with the memory they had free at the start, and the models."""
        ready = [process.ready for process in self._processes if process.ready is not None]
        return {
            "device": ",".join(each.device for each in ready),
            "vram_bytes": sum(each.budget_bytes for each in ready),
            "models": [model[:MAX_NAME_CHARS] for model in sorted(self._models)[:MAX_TOLD_MODELS]],
        }

    async def start(self) -> None:
        """Wait until all processes are ready. Raises `TransientError` if one could not start this time."""
        for process in self._processes:
            await process.start()

    async def __call__(self, job: ActiveJob) -> GenerationResult:
        """Make a job's pictures. May run twice: every attempt has files of its own, and removes them if it fails."""
        generation = job.data_as(Generation)
        if generation.model not in self._models:
            raise UnrecoverableError(f"model {generation.model!r} is not offered by this worker; see KARGAH_MODELS")
        request = _request(generation, economy=self._is_short_of_memory(job))
        pace = _remembered(self._paces, (generation.model, generation.width, generation.height), Pace())
        async with self._free_process(generation.model) as process:
            try:
                return await _Attempt(job, request, pace, self._storage).run(process)
            except OutOfMemory:
                _remembered(self._short_of_memory, (job.id, job.run), None)
                raise

    async def stop(self) -> None:
        """End the processes."""
        await asyncio.gather(*(process.stop() for process in self._processes))

    @asynccontextmanager
    async def _free_process(self, model: str) -> AsyncIterator[InferenceProcess]:
        """A process that has nothing to do; one that ran `model` last, if there is one."""
        async with self._some_free:
            process = next((free for free in self._free if self._last_models.get(free) == model), self._free[0])
            self._free.remove(process)
            self._last_models[process] = model
            try:
                yield process
            finally:
                self._free.append(process)

    def _is_short_of_memory(self, job: ActiveJob) -> bool:
        """Whether an earlier attempt, here or at another worker, found too little memory."""
        told = job.job.error is not None and job.job.error.kind == OutOfMemory.kind
        return told or (job.id, job.run) in self._short_of_memory


class _Attempt:
    """One attempt of one job, from the request to the stored pictures."""

    def __init__(self, job: ActiveJob, request: Generate, pace: Pace, storage: Storage) -> None:
        self._job = job
        self._request = request
        self._storage = storage
        self._folder = f"{job.id}/{job.attempt_key}"
        self._meter = Meter(request.steps, request.num_images, pace)
        self._allowed_s = 0.0
        self._slowest_ms = 0.0
        self._previews = 0
        self._load_ms = 0
        self._pictures: list[Picture] = []

    async def run(self, process: InferenceProcess) -> GenerationResult:
        self._job.report_progress(self._meter.read())
        await self._wait_for(process)
        async with process.attempt(self._request) as attempt:
            cancel = asyncio.create_task(self._pass_cancel_on(attempt))
            try:
                done = await self._follow(attempt)
            finally:
                cancel.cancel()
        images = await self._store(done)
        return GenerationResult(
            images=images,
            load_ms=self._load_ms,
            denoise_ms=done.denoise_ms,
            decode_ms=done.decode_ms,
            prompt_truncated=done.prompt_truncated,
        )

    async def _wait_for(self, process: InferenceProcess) -> None:
        """Until the process is ready, which is at once but after its death; or the job is canceled."""
        start = asyncio.create_task(process.start())
        cancel = asyncio.create_task(self._job.cancel_requested.wait())
        try:
            await asyncio.wait([start, cancel], return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
            self._check_cancel()
        finally:
            start.cancel()
            cancel.cancel()

    async def _pass_cancel_on(self, attempt: RunningAttempt) -> None:
        await self._job.cancel_requested.wait()
        attempt.cancel()

    async def _follow(self, attempt: RunningAttempt) -> Done:
        """Tell what the process answers, until the pictures are here."""
        self._allowed_s = attempt.patience.load_s
        while True:
            answer = await attempt.next_answer(self._allowed_s)
            self._allowed_s = attempt.patience.step_s
            match answer:
                case Done():
                    return answer
                case Canceled():
                    raise self._canceled()
                case Failed():
                    raise self._failure(answer)
                case Step():
                    await self._stepped(answer, attempt.patience)
                case _:
                    await self._tell(answer)

    async def _tell(self, answer: Answer) -> None:
        match answer:
            case Loaded():
                self._load_ms = answer.load_ms
                self._meter.loaded()
                self._job.report_progress(self._meter.read())
                await self._job.milestone("model_loaded", {"model": self._request.model, "load_ms": answer.load_ms})
                if answer.load_ms:
                    log.info("model.loaded", model=self._request.model, job=self._job.id, duration_ms=answer.load_ms)
            case Denoising():
                self._meter.denoising()
                self._job.report_progress(self._meter.read())
            case Preview():
                self._previews += 1
                step = answer.image * self._request.steps + answer.step
                told = {"number": self._previews, "step": step, "bytes": len(answer.picture)}
                await self._job.set_preview(answer.picture, told)
            case Picture():
                self._pictures.append(answer)
                self._meter.decoded()
                self._job.report_progress(self._meter.read())

    async def _stepped(self, answer: Step, patience: Patience) -> None:
        self._slowest_ms = max(self._slowest_ms, answer.ms)
        self._meter.stepped(answer.image, answer.step, answer.ms)
        self._job.report_progress(self._meter.read())
        if self._meter.all_denoised:
            await self._job.milestone("denoised", {"steps": self._meter.steps})
        elif answer.step < self._request.steps:
            self._allowed_s = patience.between_steps_s(self._slowest_ms)

    async def _store(self, done: Done) -> tuple[Image, ...]:
        self._meter.storing(done.decode_ms)
        self._job.report_progress(self._meter.read())
        await self._job.milestone("decoded", {"images": len(self._pictures), "decode_ms": done.decode_ms})
        try:
            images = tuple([await self._put(picture) for picture in self._pictures])
            await self._job.milestone("stored", {"images": len(images)})
        except BaseException as problem:
            await self._remove_files()
            if isinstance(problem, OSError):
                raise TransientError(f"the pictures could not be stored: {problem.strerror or problem}") from problem
            raise
        return images

    async def _put(self, picture: Picture) -> Image:
        self._check_cancel()
        path = f"{self._folder}/{picture.image}.png"
        await self._storage.put(path, picture.png, "image/png")
        return Image(path, picture.width, picture.height, picture.seed, len(picture.png))

    async def _remove_files(self) -> None:
        """What is left behind here is found by the sweep, later."""
        try:
            await self._storage.remove_tree(self._folder)
        except Exception as problem:
            log.warning("files.left_behind", job=self._job.id, folder=self._folder, problem=problem)

    def _check_cancel(self) -> None:
        if self._job.cancel_requested.is_set():
            raise self._canceled()

    def _canceled(self) -> JobCanceled:
        meter = self._meter
        where = f"in phase {meter.phase}, step {meter.step} of {meter.steps}"
        return JobCanceled(f"stopped {where}", phase=meter.phase, step=meter.step, steps=meter.steps)

    def _failure(self, failed: Failed) -> ProcessorError:
        request = self._request
        if failed.kind == "poison":
            return UnrecoverableError(failed.message)
        if failed.kind == "transient":
            return TransientError(failed.message)
        what = f"{request.width} × {request.height} px with {request.model!r}"
        if request.economy:
            return UnrecoverableError(
                f"too little memory for {what}, even in the way that needs the least; ask for a smaller picture",
                out_of_memory=True,
            )
        return OutOfMemory(f"too little memory for {what}; the next attempt saves memory")


def _request(generation: Generation, economy: bool) -> Generate:
    return Generate(
        request=0,
        model=generation.model,
        prompt=generation.prompt,
        negative_prompt=generation.negative_prompt,
        width=generation.width,
        height=generation.height,
        steps=generation.steps,
        guidance_scale=generation.guidance_scale,
        seed=generation.seed,
        num_images=generation.num_images,
        economy=economy,
    )


def _remembered(memory: OrderedDict[K, V], key: K, value: V) -> V:
    """What `memory` has for `key`, or `value` from now on."""
    found = memory.setdefault(key, value)
    memory.move_to_end(key)
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)
    return found
