"""The contenders: who they are, what they carry, what they count."""

import json
import subprocess

import pytest

from bench.contenders.protocol import PAYLOAD_BYTES, Ran, payload
from bench.peers import ENVIRONMENTS, PEERS, ROOT, chosen
from bench.profiling import layer_of

FOLDER = ROOT / "bench" / "contenders"


def test_every_contender_has_its_file_and_every_file_its_contender() -> None:
    played = {next(FOLDER.glob(f"{peer.program or peer.name}.*")).stem for peer in PEERS}
    assert played == {path.stem for path in FOLDER.iterdir() if path.is_file()} - {"__init__", "protocol"}


def test_the_versions_of_all_peers_are_fixed() -> None:
    for peer in PEERS:
        assert all(("@" if peer.is_node else "==") in requirement for requirement in peer.requirements), peer.name
        assert bool(peer.requirements) != (peer.is_floor or peer.name == "kargah")


def test_environments_of_peers_are_not_committed() -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", str(ENVIRONMENTS / "arq")], cwd=ROOT)
    if ignored.returncode == 128:
        pytest.skip("NOT TESTED: this is no git work tree")
    assert ignored.returncode == 0


def test_contenders_are_chosen_by_name_and_in_the_tables_order() -> None:
    assert [peer.name for peer in chosen(["bullmq", "kargah"])] == ["kargah", "bullmq"]
    assert chosen([]) == list(PEERS)
    with pytest.raises(SystemExit, match="no such contender: nobody"):
        chosen(["nobody"])


@pytest.mark.parametrize("number", [0, 7, 99_999])
def test_every_payload_has_the_same_size(number: int) -> None:
    assert len(json.dumps(payload(number), separators=(",", ":"))) == PAYLOAD_BYTES


def test_a_worker_knows_how_often_each_job_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("bench.contenders.protocol.tell", lambda at, **fields: lines.append(at))
    ran = Ran(3, 0)
    for number in (0, 2, 2):
        ran.begin(number)
    assert (bytes(ran.times), ran.total, ran.different, lines) == (b"\x01\x00\x02", 3, 2, [])
    ran.begin(1)
    ran.begin(1)
    assert lines == ["last"], "all have run, and it is told once"


def test_the_time_between_bodies_is_not_that_of_the_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100, 200, 207, 300))
    monkeypatch.setattr("bench.contenders.protocol.time.monotonic_ns", lambda: next(times))
    monkeypatch.setattr("bench.contenders.protocol.tell", lambda at, **fields: None)
    ran = Ran(2, 20)
    for number in (0, 1):
        ran.begin(number)
        ran.end()
    assert (ran.idle_ns, ran.first_ns, ran.last_ns) == (7, 100, 207)


@pytest.mark.parametrize(
    ("file", "function", "layer"),
    [
        (str(ROOT / "orchestrator" / "queue" / "adding.py"), "add", "orchestrator"),
        (str(ROOT / ".venv" / "lib" / "site-packages" / "redis" / "asyncio" / "client.py"), "evalsha", "redis-py"),
        ("~", "<method 'send' of '_socket.socket' objects>", "sockets"),
        ("~", "<method 'poll' of 'select.epoll' objects>", "waiting"),
        ("~", "<built-in method msgspec.json.encode>", "encoding"),
        ("~", "<built-in method builtins.len>", ""),
    ],
)
def test_a_profile_knows_whose_code_a_function_is(file: str, function: str, layer: str) -> None:
    assert layer_of(file, function) == layer
