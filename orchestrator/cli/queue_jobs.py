"""Jobs of any queue, read from Redis itself: what `kargah jobs` shows with `--queue`."""

import time
from collections.abc import Iterator

import msgspec
from rich.text import Text

from orchestrator.children import MAX_JOBS, JobNode
from orchestrator.cli.console import out
from orchestrator.cli.store import opened
from orchestrator.cli.tables import (
    age,
    colored,
    duration,
    instant,
    print_event,
    print_facts,
    print_json,
    print_rows,
    table_of,
)
from orchestrator.errors import JobNotFound
from orchestrator.group import WhyWaiting
from orchestrator.job import Job, JobState
from orchestrator.queue import MAX_PAGE
from orchestrator.sync import Queue

FOLLOW_S = 0.5
MAX_SHOWN_CHARS = 2000
REASONS = {
    "delayed": "it is delayed",
    "children": "its children have not ended",
    "paused": "the queue is paused",
    "limited": "the queue's rate limit",
    "concurrency": "as many jobs run as the queue's concurrency allows",
    "group_paused": "its group is paused",
    "group_limited": "its group's rate limit",
    "group_busy": "as many jobs of its group run as may",
    "no_worker": "there is no worker",
}


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
        print_json([plain_job(job) for job in found])
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
        print_json(plain_job(job))
    else:
        print_facts(_facts(job))


def show_why(queue: str, job_id: str, as_json: bool) -> None:
    """Why a job has not started."""
    with opened(queue) as store:
        why = store.why_waiting(job_id)
    if as_json:
        print_json(why)
    else:
        print_facts(_reasons(why))


def show_tree(queue: str, job_id: str, depth: int, as_json: bool) -> None:
    """A job and those below it."""
    with opened(queue) as store:
        root = store.get_flow(job_id, depth, MAX_JOBS)
        if root is None:
            raise _missing(store, job_id)
    if as_json:
        print_json(_plain_tree(root))
        return
    table = table_of("ID", "STATUS", "AGE", "QUEUE", wide="NAME")
    for level, job in _walk(root, 0):
        table.add_row("  " * level + job.id, colored(job.state), age(job.created_at), Text(job.queue), Text(job.name))
    print_rows(table, "")


def _walk(node: JobNode, level: int) -> Iterator[tuple[int, Job]]:
    yield level, node.job
    for child in node.children:
        yield from _walk(child, level + 1)


def _plain_tree(node: JobNode) -> dict[str, object]:
    return {**plain_job(node.job), "children": [_plain_tree(child) for child in node.children]}


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
        raise _missing(store, job_id)
    return job


def _missing(store: Queue, job_id: str) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id} in the queue {store.name}")


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
    if job.header.group is not None:
        facts.append(("group", f"{job.header.group}, cost {job.header.cost:g}"))
    if job.header.parent is not None:
        facts.append(("parent", f"{job.header.parent.id} in {job.header.parent.queue}"))
    if job.pending_children:
        facts.append(("waits for", f"{job.pending_children} children"))
    if job.header.schedule is not None:
        facts.append(("schedule", job.header.schedule))
    for name in ("progress", "checkpoint"):
        told = getattr(job, name)
        if told is not None:
            facts.append((name, _shown(msgspec.json.encode(told))))
    if job.result is not None:
        facts.append(("result", _shown(job.result)))
    if job.error is not None:
        facts.append(("error", f"{job.error.message} ({job.error.kind})"))
    if job.stack is not None:
        facts.append(("at", job.stack))
    if job.cancel is not None:
        facts.append(("canceled", f"by {job.cancel.by or '?'}: {job.cancel.reason}"))
    return facts


def _reasons(why: WhyWaiting) -> list[tuple[str, str | Text]]:
    facts: list[tuple[str, str | Text]] = [("status", colored(why.state))]
    if why.group is not None:
        facts.append(("group", why.group))
    if why.ahead is not None:
        facts.append(("before it", f"{'about ' if why.is_estimate else ''}{why.ahead}"))
    facts.extend(("held", REASONS[reason]) for reason in why.held_by)
    if why.due_at is not None:
        facts.append(("until", instant(why.due_at)))
    if why.eta_ms is not None:
        facts.append(("starts", f"in about {duration(why.eta_ms)}"))
    if len(facts) == 1:
        facts.append(("held", "not at all"))
    return facts


def plain_job(job: Job) -> dict[str, object]:
    """A job as it is printed as JSON."""
    plain: dict[str, object] = msgspec.structs.asdict(job)
    del plain["header"]
    return {"id": job.id, "name": job.name, **plain, "attempts": job.header.attempts}


def _shown(text: bytes | msgspec.Raw) -> str:
    shown = bytes(text).decode(errors="replace")
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[:MAX_SHOWN_CHARS]} … ({len(bytes(text))} bytes)"
