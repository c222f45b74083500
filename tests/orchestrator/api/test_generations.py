"""Generations over HTTP: what is accepted, what is refused and how it is told."""

from typing import Any

import httpx
import msgspec
import pytest

from orchestrator.api.context import Context
from orchestrator.generation import Generation
from orchestrator.job import JobOptions
from orchestrator.queue import Queue
from orchestrator.settings import Settings
from tests.orchestrator.api.hand import Hand

CIRCLE = {"prompt": "a red circle"}


async def create(api: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await api.post("/v1/generations", json=CIRCLE | fields)
    assert response.status_code == 202, response.text
    resource: dict[str, Any] = response.json()
    return resource


async def test_a_prompt_is_accepted_with_every_choice_made(api: httpx.AsyncClient, queue: Queue) -> None:
    response = await api.post("/v1/generations", json=CIRCLE | {"seed": 7, "metadata": {"mine": [1, None]}})
    assert response.status_code == 202
    resource = response.json()
    assert response.headers["location"] == f"/v1/generations/{resource['id']}"
    assert resource["status"] == "waiting"
    assert (resource["run"], resource["attempt"], resource["attempts"], resource["priority"]) == (1, 0, 3, 100)
    assert resource["input"]["prompt"] == "a red circle"
    assert resource["input"]["model"] == "kargah/shapes"
    assert resource["input"]["seed"] == 7
    assert resource["metadata"] == {"mine": [1, None]}
    assert resource["urls"]["cancel"] == f"/v1/generations/{resource['id']}/cancel"
    for absent in ("progress", "preview", "error", "reason", "cancel", "timings", "started_at", "finished_at"):
        assert resource[absent] is None
    assert resource["images"] == []

    job = await queue.get_job(resource["id"])
    assert job is not None
    assert job.data_as(Generation).seed == 7
    assert job.header.attempts == 3
    assert job.header.has_files
    assert job.header.complete_age_s == Settings().keep_completed_s
    assert job.header.fail_age_s == Settings().keep_failed_s
    assert job.header.notify == ()


async def test_what_is_answered_to_a_post_is_what_is_read_afterwards(api: httpx.AsyncClient) -> None:
    resource = await create(api)
    assert (await api.get(resource["urls"]["self"])).json() == resource


async def test_webhook_events_become_the_queues_words(api: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(
        api, webhook_url="https://127.0.0.1/hook", webhook_events=["started", "milestone", "completed"]
    )
    job = await queue.get_job(resource["id"])
    assert job is not None
    assert job.header.notify == ("active", "milestone", "completed")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x" * 2001}, "prompt"),
        ({"negative_prompt": 1}, "negative_prompt"),
        ({"model": "nobody/knows"}, "model"),
        ({"model": ""}, "model"),
        ({"width": 63}, "width"),
        ({"width": 100}, "width"),
        ({"height": 4096}, "height"),
        ({"height": "64"}, "height"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"guidance_scale": 31}, "guidance_scale"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**53}, "seed"),
        ({"seed": 10**30}, "seed"),
        ({"num_images": 5}, "num_images"),
        ({"priority": 0}, "priority"),
        ({"priority": 2**21}, "priority"),
        ({"webhook_url": "http://127.0.0.1/"}, "webhook_url"),
        ({"webhook_url": "https://10.0.0.1/"}, "webhook_url"),
        ({"webhook_url": "https://user@127.0.0.1/"}, "webhook_url"),
        ({"webhook_url": "ftp://127.0.0.1/"}, "webhook_url"),
        ({"webhook_url": "https://0x7f.1/"}, "webhook_url"),
        ({"webhook_url": "https://127.0.0.1/", "webhook_events": ["begun"]}, "webhook_events"),
        ({"webhook_events": ["started"]}, "webhook_events"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {"x": "y" * 3000}}, "metadata"),
        ({"state": "completed"}, "state"),
        ({"attempts": 100}, "attempts"),
    ],
)
async def test_a_wrong_field_is_named(api: httpx.AsyncClient, queue: Queue, fields: dict[str, Any], field: str) -> None:
    response = await api.post("/v1/generations", json=CIRCLE | fields)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["field"] == field
    assert problem["type"] == "urn:kargah:problem:invalid-field"
    assert problem["status"] == 422
    assert problem["title"]
    assert problem["errors"][0]["field"] == field
    assert problem["detail"] == f"{field}: {problem['errors'][0]['problem']}"
    assert sum((await queue.get_counts()).values()) == 0


async def test_a_missing_field_is_named(api: httpx.AsyncClient) -> None:
    problem = (await api.post("/v1/generations", json={})).json()
    assert problem["field"] == "prompt"
    assert problem["detail"] == "prompt: is required"


async def test_an_unknown_model_is_told_which_there_are(api: httpx.AsyncClient) -> None:
    problem = (await api.post("/v1/generations", json=CIRCLE | {"model": "nobody/knows"})).json()
    assert "kargah/shapes" in problem["detail"]


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 202),
        ("Application/JSON; charset=UTF-8", 202),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_only_json_is_taken(api: httpx.AsyncClient, content_type: str, status: int) -> None:
    headers = {"Content-Type": content_type}
    response = await api.post("/v1/generations", content=msgspec.json.encode(CIRCLE), headers=headers)
    assert response.status_code == status


async def test_compressed_bodies_are_refused(api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    response = await api.post("/v1/generations", content=b"\x1f\x8b", headers=headers)
    assert response.status_code == 415


async def test_a_waiting_generation_is_canceled_at_once(api: httpx.AsyncClient) -> None:
    resource = await create(api)
    response = await api.post(resource["urls"]["cancel"], json={"reason": "changed my mind"})
    assert response.status_code == 202
    assert response.json()["status"] == "canceled"
    assert response.json()["cancel"] == {"by": "api", "reason": "changed my mind"}
    assert response.json()["canceling"] is False
    again = await api.post(resource["urls"]["cancel"])
    assert again.status_code == 409
    assert again.json()["type"] == "urn:kargah:problem:wrong-state"


async def test_a_running_generation_is_asked_to_stop(api: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(api)
    await Hand.claim(queue)
    answer = (await api.post(resource["urls"]["cancel"])).json()
    assert (answer["status"], answer["canceling"]) == ("active", True)


@pytest.mark.parametrize("body", [{"reason": 1}, {"why": "x"}, {"reason": "x" * 201}])
async def test_a_wrong_cancellation_is_refused(api: httpx.AsyncClient, body: object) -> None:
    resource = await create(api)
    assert (await api.post(resource["urls"]["cancel"], json=body)).status_code == 422
    assert (await api.get(resource["urls"]["self"])).json()["status"] == "waiting"


async def test_a_failed_generation_is_retried_in_a_new_run(api: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(api)
    assert (await api.post(resource["urls"]["retry"])).status_code == 409
    await (await Hand.claim(queue)).fail("no memory")
    failed = (await api.get(resource["urls"]["self"])).json()
    assert (failed["status"], failed["reason"]) == ("failed", "error")
    assert failed["error"] == {"kind": "transient", "message": "no memory", "details": {}}
    retried = await api.post(resource["urls"]["retry"])
    assert retried.status_code == 202
    assert (retried.json()["status"], retried.json()["run"], retried.json()["attempt"]) == ("waiting", 2, 0)


async def test_a_retry_after_a_pause_says_when(api: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(api)
    await (await Hand.claim(queue)).fail(pause_ms=60_000)
    delayed = (await api.get(resource["urls"]["self"])).json()
    assert (delayed["status"], delayed["attempt"], delayed["progress"]) == ("delayed", 1, None)
    assert delayed["due_at"] > delayed["created_at"]


async def test_removal_waits_for_the_end(api: httpx.AsyncClient, queue: Queue) -> None:
    resource = await create(api)
    hand = await Hand.claim(queue)
    assert (await api.delete(resource["urls"]["self"])).status_code == 409
    await hand.fail()
    assert (await api.delete(resource["urls"]["self"])).status_code == 204
    assert (await api.delete(resource["urls"]["self"])).status_code == 404
    assert (await api.get(resource["urls"]["self"])).status_code == 404


@pytest.mark.parametrize("job_id", ["0" * 26, "a%2fb", "..%2f..", "x" * 300, "%00", "{}", "*", "a%0ab", "%ff", "é"])
@pytest.mark.parametrize(
    "call",
    [
        "GET ",
        "DELETE ",
        "POST /cancel",
        "POST /retry",
        "GET /images/0",
        "GET /preview",
        "GET /events",
    ],
)
async def test_ids_that_name_nothing_are_not_found(api: httpx.AsyncClient, job_id: str, call: str) -> None:
    method, _, path = call.partition(" ")
    response = await api.request(method, f"/v1/generations/{job_id}{path}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


async def test_the_list_has_the_unfinished_first_and_ends(api: httpx.AsyncClient, queue: Queue) -> None:
    made = [(await create(api, seed=seed))["id"] for seed in range(5)]
    await (await Hand.claim(queue)).fail()
    found: list[str] = []
    path = "/v1/generations?limit=2"
    for _ in range(3):
        page = (await api.get(path)).json()
        found += [resource["id"] for resource in page["data"]]
        path = f"/v1/generations?limit=2&cursor={page['next_cursor']}"
    assert page["next_cursor"] is None
    assert found == [*made[1:], made[0]]


@pytest.mark.parametrize("status", [None, "canceled"])
async def test_a_page_beside_a_record_that_has_just_ended_is_not_the_last(
    api: httpx.AsyncClient, queue: Queue, status: str | None
) -> None:
    made = [(await create(api, seed=seed))["id"] for seed in range(6)]
    for job_id in made:
        await queue.cancel(job_id)
    newest_first = [resource["id"] for resource in (await api.get("/v1/generations")).json()["data"]]
    for job_id in (newest_first[0], newest_first[3]):
        await queue.client.delete(f"{queue.keys.prefix}job:{job_id}", f"{queue.keys.prefix}state:{job_id}")
    found: list[str] = []
    cursor = None
    while True:
        parameters = {"limit": "2", "status": status, "cursor": cursor}
        given = {name: value for name, value in parameters.items() if value is not None}
        page = (await api.get("/v1/generations", params=given)).json()
        found += [resource["id"] for resource in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [job_id for place, job_id in enumerate(newest_first) if place not in (0, 3)]


async def test_the_list_can_be_of_one_status(api: httpx.AsyncClient, queue: Queue) -> None:
    made = [(await create(api))["id"] for _ in range(2)]
    await (await Hand.claim(queue)).fail()
    for status, ids in {"failed": made[:1], "waiting": made[1:], "completed": [], "waiting-children": []}.items():
        page = (await api.get("/v1/generations", params={"status": status})).json()
        assert [resource["id"] for resource in page["data"]] == ids


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("limit", "0"),
        ("limit", "101"),
        ("limit", "-1"),
        ("limit", "1e3"),
        ("limit", "٣"),
        ("limit", "9" * 400),
        ("cursor", "p1001"),
        ("cursor", "7"),
        ("cursor", ""),
        ("status", "lost"),
    ],
)
async def test_wrong_parameters_are_named(api: httpx.AsyncClient, parameter: str, value: str) -> None:
    response = await api.get("/v1/generations", params={parameter: value})
    assert response.status_code == 422
    assert response.json()["field"] == parameter


async def test_jobs_of_others_in_the_queue_are_not_shown(api: httpx.AsyncClient, queue: Queue) -> None:
    await queue.add("resize", {"x": 1}, JobOptions(id="resize-1"))
    await queue.add("generation", {"x": 1}, JobOptions(id="broken-1"))
    resource = await create(api)
    page = (await api.get("/v1/generations")).json()
    assert [one["id"] for one in page["data"]] == [resource["id"]]
    for job_id in ("resize-1", "broken-1"):
        assert (await api.get(f"/v1/generations/{job_id}")).status_code == 404


async def test_a_key_makes_repeats_one_generation(api: httpx.AsyncClient, queue: Queue) -> None:
    headers = {"Idempotency-Key": "mine-1"}
    first = await api.post("/v1/generations", json=CIRCLE, headers=headers)
    again = await api.post("/v1/generations", json=CIRCLE, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    await (await Hand.claim(queue)).fail()
    later = await api.post("/v1/generations", json=CIRCLE, headers=headers)
    assert (later.json()["id"], later.json()["status"]) == (first.json()["id"], "failed")
    other = await api.post("/v1/generations", json=CIRCLE, headers={"Idempotency-Key": "mine-2"})
    assert other.json()["id"] != first.json()["id"]


async def test_a_repeat_is_never_silent_whatever_became_of_the_first(
    api: httpx.AsyncClient, queue: Queue, context: Context
) -> None:
    """taskforcesh/bullmq#3765: there an add of a kept job's id does nothing and says nothing."""

    async def post() -> tuple[int, str, str]:
        response = await api.post("/v1/generations", json=CIRCLE, headers={"Idempotency-Key": "mine-1"})
        return response.status_code, response.json()["id"], response.json()["status"]

    _, first, _ = await post()
    assert await post() == (202, first, "waiting")
    hand = await Hand.claim(queue)
    assert await post() == (202, first, "active")
    await hand.complete(context.storage)
    assert await post() == (202, first, "completed")
    await queue.retry(first)
    await (await Hand.claim(queue)).fail()
    assert await post() == (202, first, "failed")
    assert sum((await queue.get_counts()).values()) == 1
    assert await queue.remove(first)
    assert await post() == (202, first, "waiting"), "after a removal the id is free: a new job"
    events = await queue.events_after("0-0")
    assert events is not None
    assert sum(event.type == "duplicated" for event in events) == 4


@pytest.mark.parametrize("change", [{"prompt": "a blue circle"}, {"seed": 1}, {"priority": 5}, {"metadata": {"a": 1}}])
async def test_a_key_is_not_taken_for_another_request(api: httpx.AsyncClient, change: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": "mine-1"}
    await api.post("/v1/generations", json=CIRCLE, headers=headers)
    response = await api.post("/v1/generations", json=CIRCLE | change, headers=headers)
    assert response.status_code == 422
    assert response.json()["field"] == "Idempotency-Key"


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\xe9"])
async def test_keys_are_short_visible_text(api: httpx.AsyncClient, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    response = await api.post("/v1/generations", json=CIRCLE, headers=headers)
    assert response.status_code == 422
    assert response.json()["field"] == "Idempotency-Key"


async def test_without_a_seed_each_generation_gets_its_own(api: httpx.AsyncClient) -> None:
    assert (await create(api))["input"]["seed"] != (await create(api))["input"]["seed"]


async def test_models_are_listed_the_default_first(api: httpx.AsyncClient, context: Context) -> None:
    cards = (await api.get("/v1/models")).json()["data"]
    assert cards[0]["id"] == context.default_model == "kargah/shapes"
