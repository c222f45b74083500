"""`python -m workers`: one worker process with its inference processes."""

import asyncio
import signal
import sys

from orchestrator import log
from orchestrator.embedded import redis_url
from orchestrator.errors import InvalidOption, TransientError
from orchestrator.settings import Settings
from orchestrator.worker import Worker
from workers.text_to_image import TextToImage


def main() -> None:
    """Run by the environment's settings until SIGTERM or SIGINT; exit status 2 for settings that cannot be."""
    try:
        settings = Settings.from_env()
        log.configure(settings.log_format)
        asyncio.run(_until_signal(settings, TextToImage.from_settings(settings)))
    except InvalidOption as problem:
        print(f"kargah worker: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


async def _until_signal(settings: Settings, processor: TextToImage) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    try:
        await serve(settings, processor, stopped)
    finally:
        stopped.cancel()
        await processor.stop()


async def serve(settings: Settings, processor: TextToImage, stopped: asyncio.Task[bool]) -> None:
    """Take jobs from when the inference processes are ready until `stopped` is done."""
    ready = asyncio.create_task(_until_ready(processor))
    try:
        await asyncio.wait([ready, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    if stopped.done():
        return
    ready.result()
    worker = Worker(
        settings.queue,
        processor,
        redis_url(settings),
        concurrency=processor.concurrency,
        lease_ms=settings.lease_ms,
        stop_grace_s=settings.stop_grace_s,
        cancel_grace_ms=settings.cancel_grace_ms,
        progress_interval_ms=settings.progress_interval_ms,
        warm_keys=processor.warm_models,
        info=processor.info,
        keeper=False,  # what could hold up this process runs in others
    )
    running = asyncio.create_task(worker.run())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    await worker.stop()
    await running


async def _until_ready(processor: TextToImage) -> None:
    """No job is claimed while it could only fail. The pauses between starts are made by the inference process."""
    while True:
        try:
            return await processor.start()
        except TransientError:
            continue  # it was logged, with what to do


if __name__ == "__main__":
    main()
