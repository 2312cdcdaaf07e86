"""What the commands of a box may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """What one command may use, all its processes together, and what the box holds on disk."""

    seconds: float = 10.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    """Anonymous and shared memory. Files in the box are memory too: see `disk_bytes`."""
    processes: int = 64
    """Threads count."""
    file_bytes: int = 16 * MIB
    """One file."""
    disk_bytes: int = 64 * MIB
    """The working folder. Half of it again for temporary files, as much for shared memory."""
    files: int = 10_000
    """Files and folders in the box."""
    output_bytes: int = 16_000
    """Of what a command prints; the rest is counted, not kept."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def for_init(self, *, isolated: bool, counts_processes: bool) -> dict[str, Any]:
        """As process 1 takes them. `counts_processes`: the kernel counts a box's processes alone."""
        each = {
            "cpu": int(self.cpu_seconds) + 1,
            "as": self.memory_bytes,
            "fsize": self.file_bytes,
            "nproc": self.processes + 1 if counts_processes else None,
            "nofile": 256,
            "core": 0,
        }
        together = {
            name: getattr(self, name)
            for name in ("seconds", "cpu_seconds", "memory_bytes", "processes", "files", "output_bytes")
        }
        return {**together, "each": each, "isolated": isolated}
