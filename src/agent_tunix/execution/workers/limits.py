"""Limits and rights of workers."""

import os
import resource
import tempfile
from dataclasses import dataclass
from typing import Self

from agent_tunix.execution.isolation import library_paths
from agent_tunix.execution.workers import linux

# Limits of an isolated worker.
MOST_FILES = 1024
MOST_THREADS = 64
# Address space beyond memory: stacks of threads and the allocator's reserve.
_ADDRESSES_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of a worker.

    Attributes:
        memory_bytes: Memory beyond what it holds after loading users' code.
        recycle_after: Number of calls after which it is replaced.
    """

    memory_bytes: int
    recycle_after: int


@dataclass(frozen=True, slots=True)
class Isolation:
    """Rights of isolated workers.

    Attributes:
        scratch: Directory of the nursery, with a subdirectory for each worker.
        readable: Absolute paths that can be read.
        memory_bytes: Memory beyond what a worker holds before users' code is loaded.
        disk_bytes: Total size of a worker's files, and size of the largest file.
        cpu_s: Processor time of a worker, from its first to its last call.
        most_tasks: Processes and threads of the user, if workers have no user of their own; None: unknown.
    """

    scratch: str
    readable: tuple[str, ...]
    memory_bytes: int
    disk_bytes: int
    cpu_s: int
    most_tasks: int | None

    @classmethod
    def make(cls, *, memory_bytes: int, disk_bytes: int, cpu_s: int) -> Self:
        """Return the rights of a new nursery's workers, with a new scratch directory."""
        # If this user is root, workers are other users. They may enter the directory but not list it.
        scratch = tempfile.mkdtemp(prefix="agent-tunix-")
        os.chmod(scratch, 0o711)
        return cls(scratch, library_paths(), memory_bytes, disk_bytes, cpu_s, linux.most_processes())

    def limits(self) -> dict[int, int]:
        """Return the resource limits of a process that holds no more than this one does now."""
        return {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_FSIZE: self.disk_bytes,
            resource.RLIMIT_DATA: linux.data_bytes() + self.memory_bytes,
            resource.RLIMIT_AS: linux.address_bytes() + self.memory_bytes + _ADDRESSES_BYTES,
        }


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Place of an isolated worker: its rights, its own directory and the nursery's process id."""

    isolation: Isolation
    directory: str
    parent: int
