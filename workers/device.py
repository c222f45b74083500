"""The device that infers: which one, how much memory it has, and how to give memory back. Imports torch."""

import gc
import os
import resource
import sys
from pathlib import Path

import msgspec
import torch

CPU_SHARE = 0.8  # of the memory that is free at the start; the rest is for the other processes of the machine

_OUT_OF_MEMORY = (
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",
    "out of memory",  # CUDA, MPS, ROCm where they do not raise their own class
    "alloc_failed",  # cuBLAS, cuDNN
    "bad_alloc",
    "could not create a memory",  # oneDNN
)


class Device(msgspec.Struct, frozen=True):
    """One device. `budget_bytes` is what was free on it when this process began."""

    name: str
    budget_bytes: int

    @property
    def bytes_per_number(self) -> int:
        """Four on a CPU, where half precision is slower, two elsewhere."""
        return 4 if self.name == "cpu" else 2

    def dtype(self, has_transformer: bool) -> torch.dtype:
        """In what the weights are held.

        UNets were trained for float16; the large transformers (Flux, SD 3, Qwen) overflow in it and want bfloat16.
        """
        if self.name == "cpu":
            return torch.float32
        return torch.bfloat16 if has_transformer else torch.float16

    def synchronize(self) -> None:
        """Wait for everything launched, so that a time measured now is a time spent."""
        if self.name.startswith("cuda"):
            torch.cuda.synchronize(self.name)
        elif self.name == "mps":
            torch.mps.synchronize()

    def begin_measuring(self) -> None:
        """Forget the peak so far."""
        if self.name.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(self.name)

    def peak_bytes(self) -> int | None:
        """The most memory held since `begin_measuring`; None where the device does not tell."""
        return torch.cuda.max_memory_allocated(self.name) if self.name.startswith("cuda") else None

    def release(self) -> None:
        """Give back what nothing refers to any more."""
        gc.collect()
        if self.name.startswith("cuda"):
            torch.cuda.empty_cache()
        elif self.name == "mps":
            torch.mps.empty_cache()


def open_device(name: str, threads: int) -> Device:
    """The device called `name` (auto, cpu, cuda, cuda:1, mps), ready for inference that gives the same bytes each time.

    Raises `ValueError` if this machine has no such device.
    """
    if threads:
        torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    index = int(number) if number.isdecimal() else 0 if not number else -1
    if kind == "cuda" and torch.cuda.is_available() and 0 <= index < torch.cuda.device_count():
        free, _total = torch.cuda.mem_get_info(index)
        return Device(f"cuda:{index}", free)
    if name == "mps" and torch.backends.mps.is_available():
        return Device("mps", int(torch.mps.recommended_max_memory()))
    if name == "cpu":
        budget_bytes = round(_free_memory() * CPU_SHARE)
        _limit_memory(budget_bytes)
        return Device("cpu", budget_bytes)
    raise ValueError(f"there is no device {name!r} here; KARGAH_DEVICE may be auto, cpu, cuda, cuda:<number> or mps")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device (or the machine) had not enough memory: CPU and library errors say it in words only."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _limit_memory(more_bytes: int) -> None:
    """Let an allocation that this machine cannot hold fail here.

    Linux grants it otherwise, and kills a process of its choice when the memory is used.
    """
    if sys.platform != "linux":
        return
    held = [int(line.split()[1]) for line in _lines(Path("/proc/self/status")) if line.startswith("VmData:")]
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held[0] * 1024 + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _free_memory() -> int:
    """What this machine, or the container we are in, has left: bytes."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _lines(Path("/sys/fs/cgroup/memory.max")), _lines(Path("/sys/fs/cgroup/memory.current"))
    if limit and used and limit[0].isdecimal():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
