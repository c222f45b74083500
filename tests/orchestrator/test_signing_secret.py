import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator import signing_secret
from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings


def test_the_secret_is_made_once_and_is_for_its_owner_only(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new" / "folder")
    secret = signing_secret.load(settings)
    path = settings.data_dir / "webhook_secret"
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing_secret.load(settings) == secret
    assert [entry.name for entry in settings.data_dir.iterdir()] == ["webhook_secret"]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with ThreadPoolExecutor(16) as pool:
        secrets = list(pool.map(lambda _: signing_secret.load(settings), range(64)))
    assert len(set(secrets)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["webhook_secret"]


def test_a_process_that_comes_too_late_takes_the_secret_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path)
    first = signing_secret.load(settings)
    monkeypatch.setattr(Path, "exists", lambda _: False)  # as it looked a moment before
    assert signing_secret.load(settings) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["webhook_secret"]


def test_the_setting_wins_and_nothing_is_written(tmp_path: Path) -> None:
    secret = signing_secret.new()
    assert signing_secret.load(Settings(data_dir=tmp_path, webhook_secret=secret)) == secret
    assert list(tmp_path.iterdir()) == []


def test_during_a_rotation_there_are_several_newest_first() -> None:
    new, old = signing_secret.new(), signing_secret.new()
    keys = signing_secret.keys(f"{new} {old}")
    assert keys == tuple(base64.b64decode(secret.removeprefix("whsec_")) for secret in (new, old))


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "   ",
        "secret",
        base64.b64encode(bytes(32)).decode(),
        "whsec_",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_" + "*" * 44,
        " ".join(["whsec_" + base64.b64encode(bytes(32)).decode()] * 11),
    ],
)
def test_what_is_no_secret_is_refused_and_not_quoted(secret: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        signing_secret.keys(secret)
    assert refusal.value.field == "webhook_secret"
    assert len(secret) < 20 or secret[6:] not in str(refusal.value)


def test_a_damaged_file_is_an_error_and_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "webhook_secret"
    path.write_bytes(b"\xff\x00")
    with pytest.raises(InvalidOption):
        signing_secret.load(Settings(data_dir=tmp_path))
    assert path.read_bytes() == b"\xff\x00"


def test_a_new_secret_each_time() -> None:
    assert len({signing_secret.new() for _ in range(100)}) == 100
