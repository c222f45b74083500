"""Where pictures are kept: an interface that files and S3 both fit, and the one on local files."""

import asyncio
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from orchestrator.errors import FileMissing, InvalidOption
from orchestrator.settings import Settings

CONTENT_TYPES = {".png": "image/png", ".webp": "image/webp", ".json": "application/json"}
CHUNK_BYTES = 64 * 1024
MAX_SEGMENTS = 8

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}")
_PARTIAL = ".partial-"  # never a valid segment, so no path can name a half-written file


class StoredFile(msgspec.Struct, frozen=True):
    """A file that is there: its size in bytes, its type, and its content in chunks (to be read once)."""

    size: int
    content_type: str
    chunks: AsyncIterator[bytes]


class Storage(Protocol):
    """Files under paths like `<job id>/<run>-<token>/<n>.png`.

    A file is there whole or not at all and never changes: each attempt writes under its own name, and only the
    finish makes an attempt's files the job's. Every method may be repeated. A path that is not of that form, or
    that would leave the storage, is refused with `InvalidOption` before anything is touched.
    """

    async def put(self, path: str, content: bytes, content_type: str) -> None:
        """Store `content`; when this returns it survives a crash of the machine."""

    async def get(self, path: str) -> StoredFile:
        """The file, to be streamed. Raises `FileMissing`."""

    async def read(self, path: str) -> bytes:
        """The whole content. Raises `FileMissing`."""

    async def remove_tree(self, prefix: str) -> None:
        """Remove everything under a job (`<job id>`) or an attempt (`<job id>/<run>-<token>`), if there is any."""

    def list_attempts(self, older_than_s: float) -> AsyncIterator[str]:
        """The attempts (`<job id>/<run>-<token>`) to which nothing was written for so many seconds."""


class LocalStorage:
    """Files in a folder of this machine (or of a shared file system)."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    async def put(self, path: str, content: bytes, content_type: str) -> None:
        """Store `content`. The type must be the one the path's ending stands for: files carry no type of their own."""
        segments = split_path(path)
        if CONTENT_TYPES.get(Path(segments[-1]).suffix) != content_type:
            raise InvalidOption("content_type", f"{content_type!r} does not go with the ending of {path!r}")
        await asyncio.to_thread(self._write, segments, content)

    async def get(self, path: str) -> StoredFile:
        """The file, to be streamed. The first chunk opens it, so a caller that needs none has nothing to close."""
        segments = split_path(path)
        size = await asyncio.to_thread(self._size, segments)
        content_type = CONTENT_TYPES.get(Path(segments[-1]).suffix, "application/octet-stream")
        return StoredFile(size, content_type, self._chunks(segments))

    async def read(self, path: str) -> bytes:
        """The whole content."""
        return await asyncio.to_thread(self._read, split_path(path))

    async def remove_tree(self, prefix: str) -> None:
        """Remove a job's or an attempt's files."""
        await asyncio.to_thread(self._remove, split_path(prefix))

    async def list_attempts(self, older_than_s: float) -> AsyncIterator[str]:
        """The attempts not written to for so long, a folder at a time, so that a large store blocks nobody."""
        before = time.time() - older_than_s
        for job in await asyncio.to_thread(_folders, self.root):
            for attempt in await asyncio.to_thread(_folders, job.path):
                if attempt.changed_at_s <= before:
                    yield f"{job.path.name}/{attempt.path.name}"

    def _write(self, segments: list[str], content: bytes) -> None:
        target = self._locate(segments)
        partial = target.with_name(f"{_PARTIAL}{secrets.token_hex(8)}")
        try:
            with _create(partial) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        # The new name, and the folders on the way to it, must survive a crash as well as the bytes do.
        for folder in [*target.parents][: len(segments)]:
            _sync_folder(folder)

    def _open(self, segments: list[str]) -> BinaryIO:
        try:
            descriptor = os.open(self._locate(segments), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            return os.fdopen(descriptor, "rb")  # refuses folders itself
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileMissing(f"there is no file {'/'.join(segments)!r} in the storage") from None

    def _read(self, segments: list[str]) -> bytes:
        with self._open(segments) as file:
            return file.read()

    async def _chunks(self, segments: list[str]) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(self._open, segments) as file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk

    def _size(self, segments: list[str]) -> int:
        with self._open(segments) as file:
            return os.fstat(file.fileno()).st_size

    def _remove(self, segments: list[str]) -> None:
        target = self._locate(segments)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
        for parent in [*target.parents][: len(segments) - 1]:
            try:
                parent.rmdir()
            except OSError:
                break  # not empty: another attempt's files

    def _locate(self, segments: list[str]) -> Path:
        path = self.root
        for segment in segments:
            path = path / segment
            if path.is_symlink():
                raise InvalidOption("path", f"{'/'.join(segments)!r} leads through a symbolic link")
        return path


def open_storage(settings: Settings) -> Storage:
    """The storage of the service: in `data_dir`, a folder for each queue, as a queue sweeps what it does not know."""
    return LocalStorage(settings.data_dir / "files" / settings.queue)


def split_path(path: str) -> list[str]:
    """The segments of a path. Raises `InvalidOption` for absolute ones, `..`, NUL, backslash and everything odd."""
    segments = path.split("/")
    if len(segments) > MAX_SEGMENTS or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise InvalidOption("path", f"{path[:200]!r} is not the path of a stored file")
    return segments


def _create(path: Path) -> BinaryIO:
    for _ in range(10):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except FileNotFoundError:
            continue  # another attempt's clean-up removed an emptied folder on the way, which may be while we make it
    raise FileMissing(f"the folder {path.parent} vanishes as soon as it is made")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Folder(msgspec.Struct, frozen=True):
    path: Path
    changed_at_s: float


def _folders(folder: Path) -> list[_Folder]:
    """The folders in `folder` that a path can name, by name."""
    found: list[_Folder] = []
    try:
        with os.scandir(folder) as entries:
            found.extend(
                _Folder(folder / entry.name, entry.stat(follow_symlinks=False).st_mtime)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and _SEGMENT.fullmatch(entry.name)
            )
    except (FileNotFoundError, NotADirectoryError):
        pass  # it was removed while we looked
    return sorted(found, key=lambda one: one.path)
