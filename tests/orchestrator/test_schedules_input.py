"""What a schedule may not say: refused before anything is sent, by the name of the field."""

from typing import Any

import pytest

from orchestrator.errors import InvalidOption
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.schedule import JobTemplate, RepeatOptions

EVERY = RepeatOptions(every_ms=60_000)


@pytest.mark.parametrize(
    ("repeat", "field"),
    [
        (RepeatOptions(), "every_ms"),
        (RepeatOptions(every_ms=1000, cron="@daily"), "every_ms"),
        (RepeatOptions(every_ms=99), "every_ms"),
        (RepeatOptions(every_ms=True), "every_ms"),
        (RepeatOptions(every_ms=10**15), "every_ms"),
        (RepeatOptions(cron="61 * * * *"), "cron"),
        (RepeatOptions(cron="@daily", tz="Nowhere"), "tz"),
        (RepeatOptions(every_ms=1000, tz="Europe/Berlin"), "tz"),
        (RepeatOptions(every_ms=1000, start_at=-1), "start_at"),
        (RepeatOptions(every_ms=1000, start_at=1.5), "start_at"),  # type: ignore[arg-type]
        (RepeatOptions(every_ms=1000, start_at=5, end_at=4), "end_at"),
        (RepeatOptions(every_ms=1000, limit=0), "limit"),
        (RepeatOptions(every_ms=1000, immediately="yes"), "immediately"),  # type: ignore[arg-type]
    ],
    ids=str,
)
async def test_a_repetition_that_can_never_be_right_names_the_field(
    queue: Queue, repeat: RepeatOptions, field: str
) -> None:
    with pytest.raises(InvalidOption, match=f"^{field}: "):
        await queue.upsert_job_scheduler("s", repeat)
    assert await queue.get_job_schedulers_count() == 0


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (JobTemplate("", None), "name"),
        (JobTemplate("s", float("nan")), "data"),
        (JobTemplate("s", None, JobOptions(id="mine")), "id"),
        (JobTemplate("s", None, JobOptions(delay_ms=5)), "delay_ms"),
        (JobTemplate("s", None, JobOptions(attempts=0)), "attempts"),
    ],
    ids=str,
)
async def test_a_template_that_no_job_could_have_names_the_field(
    queue: Queue, template: JobTemplate, field: str
) -> None:
    with pytest.raises(InvalidOption, match=f"^{field}: "):
        await queue.upsert_job_scheduler("s", EVERY, template)
    assert await queue.get_job_schedulers_count() == 0


@pytest.mark.parametrize("scheduler_id", ["", "x" * 101, " a", "ü", 5])
async def test_an_id_that_no_job_could_begin_with_is_refused(queue: Queue, scheduler_id: Any) -> None:
    for call in (queue.get_job_scheduler, queue.remove_job_scheduler):
        with pytest.raises(InvalidOption, match=r"^id: "):
            await call(scheduler_id)
    with pytest.raises(InvalidOption, match=r"^id: "):
        await queue.upsert_job_scheduler(scheduler_id, EVERY)
