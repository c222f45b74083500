"""Jobs of any queue, read from Redis itself: what `kargah jobs` shows with `--queue`."""

import time

import msgspec
from rich.text import Text

from orchestrator.cli.console import out
from orchestrator.cli.store import opened
from orchestrator.cli.tables import age, colored, instant, print_event, print_facts, print_json, print_rows, table_of
from orchestrator.errors import JobNotFound
from orchestrator.job import Job, JobState
from orchestrator.queue import MAX_PAGE
from orchestrator.sync import Queue

FOLLOW_S = 0.5
MAX_SHOWN_CHARS = 2000


def list_jobs(queue: str, state: JobState | None, limit: int, as_json: bool) -> None:
    """Those under way first, then the newest finished ones; or those of one state."""
    found: list[Job] = []
    with opened(queue) as store:
        while len(found) < limit:
            page = _page(store, state, len(found), min(limit - len(found), MAX_PAGE))
            found += page
            if len(page) < MAX_PAGE:
                break
    if as_json:
        print_json([_as_json(job) for job in found])
        return
    table = table_of("ID", "STATUS", "AGE", "ATTEMPT", wide="NAME")
    for job in found:
        attempt = f"{job.attempts_started}/{job.header.attempts}"
        table.add_row(job.id, colored(job.state), age(job.created_at), attempt, Text(job.name))
    print_rows(table, "no jobs")


def show_job(queue: str, job_id: str, as_json: bool) -> None:
    """All that is known of a job."""
    with opened(queue) as store:
        job = _get(store, job_id)
    if as_json:
        print_json(_as_json(job))
    else:
        print_facts(_facts(job))


def show_events(queue: str, job_id: str, follow: bool) -> None:
    """What happened to a job, and with `follow` what happens until it has finished."""
    with opened(queue) as store:
        last_id: str | None = None
        while True:
            job = _get(store, job_id) if follow else None
            for event in store.get_history(job_id, last_id):
                print_event(event.type, {"at": event.at, **event.fields})
                last_id = event.id
            if job is None or job.state.is_finished:
                return
            time.sleep(FOLLOW_S)


def show_lines(queue: str, job_id: str) -> None:
    """What a job's processor logged."""
    with opened(queue) as store:
        _get(store, job_id)
        start = 0
        while lines := store.get_logs(job_id, start, MAX_PAGE):
            for line in lines:
                out.print(Text(line))
            start += len(lines)


def _page(store: Queue, state: JobState | None, start: int, count: int) -> list[Job]:
    if state is not None:
        return store.get_jobs([state], start, count)
    return store.get_recent(start, count)[0]


def _get(store: Queue, job_id: str) -> Job:
    job = store.get_job(job_id)
    if job is None:
        raise JobNotFound(f"there is no job {job_id} in the queue {store.name}")
    return job


def _facts(job: Job) -> list[tuple[str, str | Text]]:
    facts: list[tuple[str, str | Text]] = [
        ("id", job.id),
        ("queue", job.queue),
        ("name", job.name),
        ("status", colored(job.state)),
        ("attempt", f"{job.attempts_started} of {job.header.attempts}, run {job.run}"),
        ("priority", str(job.priority)),
        ("data", _shown(job.data)),
        ("created", instant(job.created_at)),
    ]
    for name in ("due", "started", "finished", "expires"):
        moment = getattr(job, f"{name}_at")
        if moment is not None:
            facts.append((name, instant(moment)))
    if job.worker is not None:
        facts.append(("worker", job.worker))
    if job.progress is not None:
        facts.append(("progress", _shown(msgspec.json.encode(job.progress))))
    if job.result is not None:
        facts.append(("result", _shown(job.result)))
    if job.error is not None:
        facts.append(("error", f"{job.error.message} ({job.error.kind})"))
    if job.cancel is not None:
        facts.append(("canceled", f"by {job.cancel.by or '?'}: {job.cancel.reason}"))
    return facts


def _as_json(job: Job) -> dict[str, object]:
    plain: dict[str, object] = msgspec.structs.asdict(job)
    del plain["header"]
    return {"id": job.id, "name": job.name, **plain, "attempts": job.header.attempts}


def _shown(text: bytes | msgspec.Raw) -> str:
    shown = bytes(text).decode(errors="replace")
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[:MAX_SHOWN_CHARS]} … ({len(bytes(text))} bytes)"
