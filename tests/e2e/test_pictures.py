"""From the terminal to a picture, and everything that is told on the way."""

import asyncio
import collections
import io
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from standardwebhooks import Webhook

from orchestrator.client import Client
from orchestrator.generation import GenerationRequest, WebhookEvent
from orchestrator.job import JobState
from tests.conftest import wait_until
from tests.e2e.service import Service
from tests.webhooks.receiver import Receiver

pytestmark = pytest.mark.e2e

PROMPT = "a red circle on a white background"
LONG = 60  # steps: long enough to do something to it on the way
ALL_EVENTS: tuple[WebhookEvent, ...] = ("started", "progress", "milestone", "completed", "failed", "canceled")
MILESTONES = {"model_loaded", "preview_ready", "denoised", "decoded", "stored"}


def test_a_prompt_in_the_terminal_becomes_a_picture_of_what_it_says(service: Service, tmp_path: Path) -> None:
    command = service.kargah("generate", PROMPT, "--seed", "7", "-o", str(tmp_path / "out.png"))
    out, err = command.communicate(timeout=120)
    assert (command.returncode, out) == (0, f"{tmp_path}/out.png\n"), err
    assert "denoising" in err
    assert_red_circle_on_white(Image.open(tmp_path / "out.png"))


def test_the_same_seed_gives_the_same_picture_and_another_one_does_not(client: Client) -> None:
    first, same, other = (picture(client, GenerationRequest(prompt=PROMPT, seed=seed)) for seed in (11, 11, 12))
    assert pixels(first) == pixels(same)
    assert pixels(first) != pixels(other)


def test_ctrl_c_cancels_a_picture_and_says_at_which_step(service: Service, client: Client) -> None:
    command = service.kargah("generate", PROMPT, "--steps", str(LONG))
    assert command.stderr is not None
    lines = iter(command.stderr.readline, "")
    assert any(line == "denoising\n" for line in lines)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert f"/{LONG}" in err.splitlines()[-1]
    (newest,) = client.list(status="canceled", limit=1).data
    assert newest.images == ()
    assert newest.cancel is not None


def test_a_watcher_that_drops_out_twenty_times_has_every_event_exactly_once(client: Client) -> None:
    generation = client.submit(GenerationRequest(prompt=PROMPT, steps=LONG))
    seen: list[str] = []
    for _ in range(20):
        for event in client.follow(generation.id, seen[-1] if seen else "0-0"):
            seen.append(str(event.id))
            break
    seen.extend(str(event.id) for event in client.follow(generation.id, seen[-1]))
    assert seen == [event.id for event in client.history(generation.id)]
    assert len(seen) > 20
    assert client.get(generation.id).status is JobState.COMPLETED


async def test_the_webhooks_of_a_picture_arrive_signed_and_complete(
    service: Service, client: Client, sink: Receiver, webhook: Webhook
) -> None:
    request = GenerationRequest(
        prompt=PROMPT, webhook_url=sink.url, webhook_events=ALL_EVENTS, metadata={"order": "№ 7"}
    )
    generation = await asyncio.to_thread(client.submit, request)
    bodies: dict[str, dict[str, object]] = {}

    def is_complete() -> bool:
        for each in sink.requests[len(bodies) :]:
            body = webhook.verify(each.body, each.headers)
            assert body["data"]["id"] == generation.id
            bodies[each.headers["webhook-id"]] = body
        return any(body["type"] == "generation.completed" for body in bodies.values())

    await wait_until(is_complete, timeout_s=120)
    history = await asyncio.to_thread(client.history, generation.id)
    expected = {"active", "milestone", "completed"}
    milestones = {event.data["name"] for event in history if event.type == "milestone"}
    assert milestones == MILESTONES

    def have_all_arrived() -> bool:
        is_complete()
        return len(bodies) >= 1 + len(expected) + len(milestones)

    await wait_until(have_all_arrived, timeout_s=60)
    types = collections.Counter(str(body["type"]) for body in bodies.values())
    assert types["generation.started"] == 1
    assert types["generation.completed"] == 1
    assert types["generation.progress"] >= 1
    assert types["generation.milestone"] == len([event for event in history if event.type == "milestone"])
    assert all(body["data"]["metadata"] == {"order": "№ 7"} for body in bodies.values())  # type: ignore[index]


def picture(client: Client, request: GenerationRequest) -> Image.Image:
    generation = client.submit(request)
    for _ in client.follow(generation.id):
        pass
    finished = client.get(generation.id)
    assert finished.status is JobState.COMPLETED, finished.error
    return Image.open(io.BytesIO(client.download(finished.images[0])))


def pixels(image: Image.Image) -> bytes:
    return image.convert("RGB").tobytes()


def assert_red_circle_on_white(image: Image.Image) -> None:
    """Roughly: white at the edge, one red patch about as wide as it is high, filling a circle's share of its box."""
    rgb = np.asarray(image.convert("RGB"), dtype=np.int16)
    edge = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    assert (edge.min(axis=1) > 180).mean() > 0.9
    red = (rgb[..., 0] > 140) & (rgb[..., 1] < 110) & (rgb[..., 2] < 110)
    rows, columns = np.nonzero(red)
    assert len(rows) > 0.01 * red.size
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert 0.7 < height / width < 1.4
    assert 0.6 < len(rows) / (height * width) < 0.95  # a circle: π/4 = 0.785
