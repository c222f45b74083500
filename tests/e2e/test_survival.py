"""Whatever dies, nothing that was accepted is lost."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from orchestrator.client import Client, GenerationView, StreamEvent
from orchestrator.generation import GenerationRequest
from orchestrator.job import JobState
from tests.e2e.service import Service

pytestmark = pytest.mark.e2e

LONG = GenerationRequest(prompt="a blue square on a white background", steps=60)
SHORT = GenerationRequest(prompt="a green triangle on a black background", steps=4)


def test_a_worker_killed_in_the_middle_of_a_picture_costs_an_attempt_not_the_picture(
    service: Service, client: Client
) -> None:
    generation, events = submit_and_reach_the_middle(client)
    killed = service.pids()["worker"]
    service.kill("worker")
    types = [event.type for event in events]
    assert "stalled" in types
    finished = completed(client, generation)
    assert finished.attempt == 2
    assert finished.run == 1
    assert service.pids()["worker"] != killed
    assert f"worker (pid {killed}) was killed by SIGKILL; restart 1 in 0.5 s" in service.log


def test_a_killed_valkey_comes_back_with_everything(service: Service, client: Client) -> None:
    done = completed(client, follow(client, client.submit(SHORT)))
    generation, events = submit_and_reach_the_middle(client)
    waiting = [client.submit(SHORT) for _ in range(5)]
    service.kill("valkey")
    assert [event.type for event in events][-1] == "completed"
    for each in [generation, *waiting]:
        completed(client, follow(client, each))
    assert client.get(done.id) == done
    ids = [each.id for each in client.list(limit=100).data]
    assert {generation.id, done.id, *(each.id for each in waiting)} <= set(ids)
    assert "valkey is ready again" in service.log


def test_a_killed_api_comes_back_and_its_watchers_miss_nothing(service: Service, client: Client) -> None:
    generation, events = submit_and_reach_the_middle(client)
    service.kill("api")
    later = list(events)
    history = [event.id for event in client.history(generation.id)]
    assert [event.id for event in later] == history[history.index(later[0].id) :]
    completed(client, generation)


def test_a_restart_finds_the_old_generations_and_their_pictures(service: Service, client: Client) -> None:
    done = completed(client, follow(client, client.submit(SHORT)))
    content = client.download(done.images[0])
    under_way = client.submit(LONG)
    waiting = client.submit(SHORT)
    service.stop()
    service.start()
    assert client.get(done.id) == done
    assert client.download(done.images[0]) == content
    assert completed(client, follow(client, under_way)).attempt <= 2
    completed(client, follow(client, waiting))


def test_after_a_killed_supervisor_the_next_start_takes_over(service: Service, client: Client) -> None:
    generation, events = submit_and_reach_the_middle(client)
    events.close()  # type: ignore[attr-defined]
    service.kill_supervisor()
    service.start()
    completed(client, follow(client, generation))


def test_a_second_start_on_the_same_folder_is_refused(service: Service) -> None:
    environment = service.environment | {"KARGAH_PORT": "0"}
    ended = up(environment)
    assert ended.returncode == 1
    assert f"the data folder {service.data_dir} is in use by another `kargah up`" in ended.stderr


def test_a_port_that_is_taken_is_named_with_its_setting(service: Service) -> None:
    ended = up(service.environment | {"KARGAH_DATA_DIR": str(service.data_dir.with_name("other"))})
    assert ended.returncode == 1
    assert "Choose another port with KARGAH_PORT" in ended.stderr


def up(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrator.cli", "up"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def submit_and_reach_the_middle(client: Client) -> tuple[GenerationView, Iterator[StreamEvent]]:
    """A generation that is being denoised, and its events from there on."""
    generation = client.submit(LONG)
    events = client.follow(generation.id)
    for event in events:
        progress = event.data.get("progress") or {}
        if event.type == "progress" and progress.get("phase") == "denoising" and progress.get("step", 0) >= 3:
            return generation, events
    raise AssertionError("it was never denoised")


def follow(client: Client, generation: GenerationView) -> GenerationView:
    for _ in client.follow(generation.id):
        pass
    return generation


def completed(client: Client, generation: GenerationView) -> GenerationView:
    finished = client.get(generation.id)
    assert finished.status is JobState.COMPLETED, finished.error
    assert client.download(finished.images[0]).startswith(b"\x89PNG")
    return finished
