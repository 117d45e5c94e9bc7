"""Checkpoints that are complete or absent.

    checkpoints/
      step_000025/
        weights/         the weights that train, written by Orbax
        optimizer/       the optimizer's state, written by Orbax
        reference/       the reference policy's weights, written by Orbax, if they move
        ahead/           completions of the steps that follow, if they were sampled already
        metadata.json    step, seed, and facts about the run
        manifest.json    the SHA-256 of every other file
      best.json          step of the best checkpoint, if the run has a metric for it

A checkpoint is written under a temporary name. It gets its final name after all of it, including the manifest, is
flushed to disk. So a kill or a power cut at any moment leaves either the whole directory or none.
Reading verifies the manifest, so that a truncated or altered file is found before it reaches the weights.
`restore_latest` then reads the checkpoint before it.

Each of several processes writes and reads its parts of the arrays. The first process does everything else. An error in
one process is raised in all of them. The number of processes may differ between writing and reading.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import orbax.checkpoint as ocp

from agent_tunix.atomic_files import copy_files, make_directory, replacing, sync, sync_tree
from agent_tunix.distributed import Processes
from agent_tunix.distributed.loss import is_of_a_partner
from agent_tunix.errors import CheckpointError
from agent_tunix.runs.weights.write_faults import explain

_LOGGER = logging.getLogger("agent_tunix.checkpoints")
# Most digits of a step. No run reaches a larger step, and a list of all steps up to it would exhaust memory.
_MOST_DIGITS = 7


# Part of a checkpoint ("weights", "optimizer", "reference") → name → array.
State = Mapping[str, Mapping[str, jax.Array]]
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True)
class Restored:
    """A checkpoint that was read."""

    step: int  # number of batches of prompts that the weights have seen
    state: State  # part → name → array, with the shapes and shardings that the caller asked for
    metadata: dict[str, Any]  # the metadata given to `save`, and `step`
    directory: Path  # has the files given to `save`


class _DamagedError(CheckpointError):
    """A checkpoint whose files are missing or altered."""


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(
        self,
        directory: Path,
        max_to_keep: int,
        processes: Processes | None = None,
        earlier: Sequence[Path] = (),
        max_bytes: float | None = None,
    ) -> None:
        """Set the directories, the processes and the limits.

        Args:
            directory: Directory of the checkpoints, which need not exist.
            max_to_keep: Number of checkpoints to keep after a new one is written, besides the best.
            processes: Processes that write and read checkpoints together; None for this process alone.
            earlier: Directories in which the run has earlier checkpoints. They are read, and nothing is written there.
            max_bytes: Bytes that the checkpoints of the directory may take, besides the last and the best; None for
                no limit.
        """
        self._processes = processes or Processes()
        self._directory = directory.absolute()
        self._places = tuple(dict.fromkeys([self._directory, *(place.absolute() for place in earlier)]))
        self._max_to_keep = max_to_keep
        self._max_bytes = max_bytes

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        return sorted({step for place in self._places for step in _steps_in(place)})

    def save(self, step: int, state: State, metadata: dict[str, Any], files: Mapping[str, bytes] = NO_FILES) -> None:
        """Write a checkpoint, then remove the oldest ones beyond `max_to_keep` and `max_bytes`, but never the best.

        Those beyond `max_bytes` are removed before, too, so that there is room for the new one.

        Args:
            step: Step of the checkpoint.
            state: Its arrays.
            metadata: Its metadata, in JSON's types.
            files: Further files of it by path, which the first process writes.

        Raises:
            CheckpointError: The disk is full or the directory cannot be written; older checkpoints are untouched.
        """
        final = self._directory / _name_of(step)
        partial = final.with_name(f".{final.name}.partial")

        def prepare() -> None:
            for left_behind in self._directory.glob(".step_*.partial"):
                shutil.rmtree(left_behind, ignore_errors=True)
            make_directory(partial)

        def write_arrays() -> None:
            with ocp.PyTreeCheckpointer() as checkpointer:
                for part, arrays in state.items():
                    checkpointer.save(partial / part, dict(arrays))

        def complete() -> None:
            for path, content in files.items():
                (partial / path).parent.mkdir(exist_ok=True)
                (partial / path).write_bytes(content)
            (partial / "metadata.json").write_text(json.dumps({"step": step, **metadata}, indent=1), encoding="utf-8")
            (partial / "manifest.json").write_text(json.dumps(_digest_files(partial), indent=1), encoding="utf-8")
            self._publish(partial, final)

        num_bytes = size_of(state)

        def explained(work: Callable[[], None]) -> Callable[[], None]:
            def attempt() -> None:
                with self._writing(step, partial, num_bytes):
                    work()

            return attempt

        if self._processes.is_first:
            self._remove_old(coming=num_bytes)
        self._processes.from_first(explained(prepare))
        self._processes.each(explained(write_arrays))
        self._processes.from_first(explained(complete))
        if self._processes.is_first:
            self._remove_old()

    @contextlib.contextmanager
    def _writing(self, step: int, partial: Path, num_bytes: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax and TensorStore raise many kinds
            if self._processes.count > 1 and is_of_a_partner(error):
                raise
            # Before the removal, which frees space.
            reason = explain(error, step, self._directory, num_bytes, self._max_to_keep)
            if self._processes.is_first:
                shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"{reason}. Earlier checkpoints are complete{self._name_steps()}.",
                code="checkpoint_not_written",
            ) from error

    def _name_steps(self) -> str:
        try:
            return f" ({self.steps() or 'there are none'})"
        except OSError:  # too many open files
            return ""

    def _remove_old(self, coming: int = 0) -> None:
        """Remove the oldest checkpoints beyond the limits.

        Args:
            coming: Bytes of a checkpoint that is about to be written; 0 after it is complete.
        """
        if coming and self._max_bytes is None:
            return
        try:
            best = self.best_step()
        except CheckpointError as error:  # without the mark, the best one could be removed
            _LOGGER.warning("%s. All checkpoints are kept until then", error)
            return
        steps = _steps_in(self._directory)
        surplus = [] if coming else [old for old in steps[: -self._max_to_keep] if old != best]
        if self._max_bytes is not None:
            sizes = {step: _bytes_in(self._directory / _name_of(step)) for step in steps if step not in surplus}
            for old in [step for step in sizes if step not in (best, steps[-1])]:
                if coming + sum(sizes.values()) > self._max_bytes:
                    del sizes[old]
                    surplus.append(old)
        for old in surplus:
            shutil.rmtree(self._directory / _name_of(old), ignore_errors=True)

    def mark_best(self, step: int) -> None:
        """Mark the checkpoint of a step as the best, so that it is kept.

        Raises:
            CheckpointError: The directory cannot be written.
        """

        def mark() -> None:
            try:
                make_directory(self._directory)
                with replacing(self._directory / "best.json") as file:
                    file.write(json.dumps({"step": step}).encode())
            except OSError as error:
                raise CheckpointError(
                    f"{self._directory}/best.json cannot be written: {_cause(error)}", code="checkpoint_not_written"
                ) from error

        self._processes.from_first(mark)

    def repair_best(self, step: int | None) -> None:
        """Mark the best checkpoint of a resumed run again, and remove a mark that is damaged.

        Args:
            step: Step of the best checkpoint; None if it is unknown, which keeps an intact mark.

        Raises:
            CheckpointError: The directory cannot be written.
        """
        if step is not None:
            self.mark_best(step)
            return

        def check() -> None:
            try:
                self.best_step()
            except CheckpointError:
                mark = self._directory / "best.json"
                _LOGGER.warning("%s is damaged and is removed; no earlier checkpoint counts as the best", mark)
                mark.unlink(missing_ok=True)

        self._processes.from_first(check)

    def best_step(self) -> int | None:
        """Return the step of the best checkpoint; None if none is marked.

        Raises:
            CheckpointError: best.json is damaged.
        """
        try:
            step = json.loads((self._directory / "best.json").read_bytes())["step"]
            if type(step) is not int:
                raise ValueError("its step is not an integer")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"{self._directory}/best.json is damaged: {_cause(error)}; remove it", code="checkpoint_damaged"
            ) from error
        return step

    def restore_latest(self, like: State) -> Restored | None:
        """Return the newest intact checkpoint; None if there are no checkpoints.

        Args:
            like: Arrays with the shapes, types and shardings to restore. Parts that are missing here are not read.

        Raises:
            CheckpointError: All checkpoints are damaged, or the newest intact one does not fit the model.
        """
        damaged = []
        for step in reversed(self._processes.from_first(self.steps)):
            try:
                return self.restore(step, like)
            except _DamagedError as error:
                _LOGGER.warning("%s; trying the previous one", error)
                damaged.append(str(error))
        if damaged:
            raise CheckpointError(
                "every checkpoint is damaged:\n  "
                + "\n  ".join(damaged)
                + "\nTo start from the beginning, choose another hydra.run.dir.",
                code="checkpoint_damaged",
            )
        return None

    def restore(self, step: int, like: State) -> Restored:
        """Return the checkpoint of a step.

        Args:
            step: Step of the checkpoint.
            like: Arrays with the shapes, types and shardings to restore.

        Raises:
            CheckpointError: The checkpoint does not exist, is damaged, or does not fit the model.
        """
        path = self._path(step)
        self._processes.from_first(lambda: self._verify(step))
        try:
            with ocp.PyTreeCheckpointer() as checkpointer:
                for part, arrays in like.items():
                    found = checkpointer.metadata(path / part).item_metadata.tree if (path / part).is_dir() else {}
                    _check_fit(path / part, found, arrays)
                state = {
                    part: checkpointer.restore(
                        path / part, item=arrays, restore_args=ocp.checkpoint_utils.construct_restore_args(arrays)
                    )
                    for part, arrays in like.items()
                }
        except CheckpointError:
            raise
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise CheckpointError(f"{path} cannot be read: {_cause(error)}", code="checkpoint_damaged") from error
        return Restored(step=step, state=state, metadata=_read_metadata(path), directory=path)

    def remove_after(self, step: int) -> None:
        """Remove the checkpoints past a step, which a resumed run writes again."""

        def remove() -> None:
            for later in self.steps():
                if later > step:
                    shutil.rmtree(self._path(later), ignore_errors=True)

        self._processes.from_first(remove)

    def adopt(self, steps: Iterable[int]) -> None:
        """Copy checkpoints of the earlier directories into this one, and forget those directories.

        Raises:
            CheckpointError: A checkpoint cannot be read or written.
        """

        def copy() -> None:
            for step in steps:
                source, partial = self._path(step), self._directory / f".{_name_of(step)}.partial"
                with self._writing(step, partial, _bytes_in(source)):
                    copy_files(source, partial)
                    self._publish(partial, self._directory / _name_of(step))

        self._processes.from_first(copy)
        self._places = (self._directory,)

    def _publish(self, partial: Path, final: Path) -> None:
        """Give a complete checkpoint its final name."""
        sync_tree(partial)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        sync(self._directory)

    def _path(self, step: int) -> Path:
        """Return the directory of a checkpoint, in the first place that has it."""
        paths = [place / _name_of(step) for place in self._places]
        return next((path for path in paths if path.is_dir()), paths[0])

    def _verify(self, step: int) -> None:
        path = self._path(step)
        if not path.is_dir():
            raise CheckpointError(
                f"{self._directory} has no checkpoint of step {step}; there are {self.steps()}",
                code="no_checkpoint",
            )
        try:
            expected = json.loads((path / "manifest.json").read_bytes())
            if not isinstance(expected, dict):
                raise ValueError(f"manifest.json contains {type(expected).__name__}, not an object")
            found = _digest_files(path)
        except (OSError, ValueError, RecursionError) as error:
            raise _DamagedError(f"{path} is damaged: {error}", code="checkpoint_damaged") from error
        if found != expected:
            names = sorted({n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n)})
            raise _DamagedError(
                f"{path} is damaged: {', '.join(map(repr, names[:3]))} changed, missing or added",
                code="checkpoint_damaged",
            )


def size_of(state: State) -> int:
    """Return the bytes of the arrays of a checkpoint."""
    return sum(array.nbytes for arrays in state.values() for array in arrays.values())


def _bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _name_of(step: int) -> str:
    return f"step_{step:06d}"


def _steps_in(directory: Path) -> list[int]:
    """Return the steps that have a checkpoint in a directory, oldest first."""
    if not directory.is_dir():
        return []
    names = (path.name.removeprefix("step_") for path in directory.glob("step_*"))
    return sorted(int(name) for name in names if name.isdecimal() and len(name) <= _MOST_DIGITS)


def _check_fit(part: Path, found: Mapping[str, Any], wanted: Mapping[str, jax.Array]) -> None:
    """Refuse a part whose names, shapes or types differ from those wanted, before any array is read."""

    def describe(arrays: Mapping[str, Any], name: str) -> str:
        return f"{tuple(arrays[name].shape)} {arrays[name].dtype}" if name in arrays else "absent"

    for name in [*wanted, *found]:
        there, here = describe(found, name), describe(wanted, name)
        if there != here:
            raise CheckpointError(
                f"{part} must fit this model and optimiser, but {name} is {there} in the checkpoint and {here} in "
                "this run; resume with the model.*, optimizer.* and grpo.reference_sync_steps settings of the "
                "checkpoint, or start a new run",
                code="checkpoint_mismatch",
            )


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((path / "metadata.json").read_bytes())
        if not isinstance(metadata, dict):
            raise ValueError(f"metadata.json contains {type(metadata).__name__}, not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise _DamagedError(f"{path} is damaged: {error}", code="checkpoint_damaged") from error
    return metadata


def _digest_files(directory: Path) -> dict[str, str]:
    """Return relative path → SHA-256 of every file except the manifest.

    Raises:
        OSError: A file cannot be read.
    """
    return {
        path.relative_to(directory).as_posix(): _digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path != directory / "manifest.json"
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cause(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300] if text else 'no details'}"
