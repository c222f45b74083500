"""The storage: files are whole or absent, and no path leads anywhere else."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import FileMissing, InvalidOption
from orchestrator.settings import Settings
from orchestrator.storage import CHUNK_BYTES, LocalStorage, Storage, open_storage, split_path

PATH = "0v5k2/1-AbC_d-e.1/0.png"
PNG = "image/png"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "files")


async def test_what_was_put_is_what_is_read(storage: Storage) -> None:
    content = os.urandom(2 * CHUNK_BYTES + 1)
    await storage.put(PATH, content, PNG)
    assert await storage.read(PATH) == content
    file = await storage.get(PATH)
    assert (file.size, file.content_type) == (len(content), PNG)
    chunks = [chunk async for chunk in file.chunks]
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) == CHUNK_BYTES


async def test_putting_again_is_harmless_and_leaves_nothing_beside_the_file(storage: LocalStorage) -> None:
    for content in (b"one", b"two"):
        await storage.put(PATH, content, PNG)
    assert await storage.read(PATH) == b"two"
    assert [file.name for file in (storage.root / PATH).parent.iterdir()] == ["0.png"]


async def test_a_file_that_is_not_there_is_missing(storage: Storage) -> None:
    await storage.put(PATH, b"x", PNG)
    for path in ("0v5k2/1-AbC_d-e.1/1.png", "0v5k2", "0v5k2/1-AbC_d-e.1", f"{PATH}/0.png", "nobody/1-t/0.png"):
        with pytest.raises(FileMissing, match="there is no file"):
            await storage.read(path)
        with pytest.raises(FileMissing):
            await storage.get(path)


HOSTILE = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../secret.png",
    "job/../../secret.png",
    "job/./0.png",
    "job//0.png",
    "job/0.png/",
    "job/..%2f0.png",
    "%2e%2e/0.png",
    "job\\..\\0.png",
    "job/0.png\0",
    "job/\n0.png",
    "job/0.png\n",
    ".hidden/0.png",
    "job/.partial-00/0.png",
    "~/0.png",
    "C:\\0.png",
    "job/" + "x" * 201,
    "/".join("abcdefghi"),
    "job/\u2024\u2024/0.png",
    "ｊｏｂ/0.png",
    "-job/0.png",
]


@pytest.mark.parametrize("path", HOSTILE)
async def test_a_path_that_is_not_of_the_form_is_refused_before_anything_is_touched(
    storage: LocalStorage, path: str
) -> None:
    (storage.root.parent / "secret.png").write_bytes(b"secret")
    with pytest.raises(InvalidOption):
        await storage.put(path, b"x", PNG)
    with pytest.raises(InvalidOption):
        await storage.get(path)
    with pytest.raises(InvalidOption):
        await storage.read(path)
    with pytest.raises(InvalidOption):
        await storage.remove_tree(path)
    assert not storage.root.exists()
    assert (storage.root.parent / "secret.png").read_bytes() == b"secret"


@given(st.text(max_size=30))
def test_whatever_is_accepted_stays_inside(path: str) -> None:
    try:
        segments = split_path(path)
    except InvalidOption:
        return
    assert Path("/root", *segments).resolve().is_relative_to("/root")
    assert "/".join(segments) == path


@pytest.mark.parametrize("job_id", ["a:b", "user@host", "2024-01-01", "A.b_c"])
async def test_every_id_a_job_may_have_can_be_in_a_path(storage: Storage, job_id: str) -> None:
    await storage.put(f"{job_id}/1-t/0.png", b"x", PNG)
    assert await storage.read(f"{job_id}/1-t/0.png") == b"x"


async def test_symbolic_links_are_not_followed(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0.png").write_bytes(b"secret")
    await storage.put("job/1-t/1.png", b"x", PNG)
    (storage.root / "job" / "link").symlink_to(outside)
    (storage.root / "job" / "1-t" / "0.png").symlink_to(outside / "0.png")
    for path in ("job/link/0.png", "job/1-t/0.png"):
        with pytest.raises(InvalidOption, match="symbolic link"):
            await storage.read(path)
        with pytest.raises(InvalidOption, match="symbolic link"):
            await storage.put(path, b"x", PNG)
    with pytest.raises(InvalidOption, match="symbolic link"):
        await storage.remove_tree("job/link")
    await storage.remove_tree("job")
    assert (outside / "0.png").read_bytes() == b"secret"


async def test_a_type_that_does_not_go_with_the_ending_is_refused(storage: Storage) -> None:
    for path, content_type in ((PATH, "text/html"), ("job/1-t/0.html", "text/html"), ("job/1-t/0", PNG)):
        with pytest.raises(InvalidOption, match="content_type"):
            await storage.put(path, b"x", content_type)


async def test_a_failed_write_leaves_nothing(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await storage.put(PATH, b"x", PNG)
    assert [file for file in storage.root.rglob("*") if file.is_file()] == []


async def test_removing_an_attempt_leaves_the_others_and_the_last_one_takes_the_job_along(
    storage: LocalStorage,
) -> None:
    await storage.put("job/1-a/0.png", b"x", PNG)
    await storage.put("job/2-b/0.png", b"x", PNG)
    await storage.remove_tree("job/1-a")
    assert await storage.read("job/2-b/0.png") == b"x"
    await storage.remove_tree("job/2-b")
    await storage.remove_tree("job/2-b")
    await storage.remove_tree("job")
    assert list(storage.root.iterdir()) == []


async def test_removing_a_job_takes_all_its_attempts(storage: LocalStorage) -> None:
    await storage.put("job/1-a/0.png", b"x", PNG)
    await storage.put("job/2-b/0.png", b"x", PNG)
    await storage.remove_tree("job")
    assert list(storage.root.iterdir()) == []


async def test_attempts_that_write_while_others_are_removed_lose_nothing(storage: LocalStorage) -> None:
    async def write_and_remove(number: int) -> None:
        for turn in range(20):
            await storage.put(f"job/{number}-{turn}/0.png", b"x", PNG)
            assert await storage.read(f"job/{number}-{turn}/0.png") == b"x"
            await storage.remove_tree(f"job/{number}-{turn}")

    await asyncio.gather(*(write_and_remove(number) for number in range(4)))
    assert list(storage.root.iterdir()) == []


async def test_a_folder_that_vanishes_while_the_one_in_it_is_made_is_made_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir
    vanished: list[Path] = []

    def make_after_a_clean_up(path: Path, mode: int = 0o777) -> None:
        if path.name == "1-x" and path.parent.is_dir() and not vanished:
            path.parent.rmdir()
            vanished.append(path)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", make_after_a_clean_up)
    await storage.put("job/1-x/0.png", b"x", PNG)
    assert vanished
    assert await storage.read("job/1-x/0.png") == b"x"


async def test_only_old_attempts_are_listed(storage: LocalStorage) -> None:
    assert [path async for path in storage.list_attempts(0)] == []
    for path in ("a/1-x/0.png", "a/1-y/0.png", "b/1-z/0.png"):
        await storage.put(path, b"x", PNG)
    long_ago = time.time() - 3600
    os.utime(storage.root / "a" / "1-x", (long_ago, long_ago))
    (storage.root / "a" / ".partial-1").mkdir()
    (storage.root / "stray").write_text("")
    assert [path async for path in storage.list_attempts(1800)] == ["a/1-x"]
    assert [path async for path in storage.list_attempts(-1)] == ["a/1-x", "a/1-y", "b/1-z"]


async def test_the_service_keeps_its_files_in_its_data_folder(tmp_path: Path) -> None:
    storage = open_storage(Settings(data_dir=tmp_path, queue="mine"))
    await storage.put(PATH, b"x", PNG)
    assert (tmp_path / "files" / "mine" / PATH).read_bytes() == b"x"
