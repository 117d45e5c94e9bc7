"""`agent-tunix export`: a run's policy as a Hugging Face directory. Importing this module does not load JAX.

The directory appears complete or not at all: it is written under a temporary name, synced to disk, and renamed.
`export.json` lists all files with their hashes. An earlier export may be replaced only if its directory holds exactly
the listed files, unchanged.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent_tunix.atomic_files import sync, sync_tree
from agent_tunix.config.schema import PromptConfig
from agent_tunix.data import Example, PromptEncoder
from agent_tunix.data.messages import read_template
from agent_tunix.errors import ConfigError, ExportError
from agent_tunix.hubs.push import check_push, push_directory
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_cached_directory
from agent_tunix.policy.files.location import parse_location
from agent_tunix.runs.exported_prompts import write_prompts
from agent_tunix.runs.found_run import FoundRun, Step, check_step, find_run
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.startup import devices
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.training.model_card import write_card

MANIFEST = "export.json"

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Exported:
    """A finished export."""

    directory: Path
    step: int  # step of the checkpoint that was exported
    num_bytes: int


def export_and_push(
    place: Path,
    directory: Path | None,
    *,
    repository: str | None = None,
    public: bool = False,
    step: Step = None,
    adapter: bool = False,
    dtype: Dtype = "auto",
    overwrite: bool = False,
) -> tuple[Exported, str | None]:
    """Export a run to a directory, to a repository of the Hugging Face hub, or to both.

    Args:
        place: Directory of the run.
        directory: Target directory; None to keep nothing on this machine.
        repository: `owner/name` on the hub; None to upload nothing.
        public: True to make a new repository public.
        step: Step of the checkpoint; None for the latest, `best` for the best, 0 for the model before training.
        adapter: True to write the adapter alone.
        dtype: Data type of merged weights.
        overwrite: True to replace an earlier export.

    Returns:
        The export, and the address of the repository if there is one.

    Raises:
        ConfigError: There is neither a directory nor a repository, or `place` is no run.
        ExportError, CheckpointError, ModelError: It cannot be exported or uploaded.
    """
    if directory is None and repository is None:
        raise ConfigError(
            "give --to DIR, --push OWNER/NAME, or both (in Python, export(DIR, push=…))", code="invalid_request"
        )
    if repository is not None:
        check_push(repository)
    wanted_step = check_step(step)
    run = find_run(place, "RUN")
    devices.prepare(run.config.distributed)
    with contextlib.ExitStack() as stack:
        to = directory or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
        settings: dict[str, Any] = {"adapter": adapter, "dtype": dtype, "overwrite": overwrite}
        exported = export_run(run, to, step=wanted_step, repository=repository, **settings)
        page = None if repository is None else push_directory(to, repository, private=not public)
    return exported, page


def export_run(
    run: FoundRun,
    to: Path,
    *,
    step: Step = None,
    adapter: bool = False,
    dtype: Dtype = "auto",
    overwrite: bool = False,
    repository: str | None = None,
) -> Exported:
    """Write a run's policy to a directory that transformers, vLLM or PEFT can load.

    Args:
        run: The run.
        to: Target directory. It must be missing or empty, unless `overwrite` is set.
        step: Step of the checkpoint; None for the latest, `best` for the best, 0 for the model before training.
        adapter: True to write the adapter alone, for PEFT.
        dtype: Data type of merged weights; "auto" for the type that the run computed in.
        overwrite: True to replace an earlier export. Other content is never replaced.
        repository: Repository of the hub, which the model card names in place of the directory.

    Raises:
        ExportError: The directory holds other files, or cannot be written.
        CheckpointError, ModelError: The policy cannot be loaded, or has no adapter.
    """
    _check_place(run, to, overwrite)
    import jax.numpy as jnp

    from agent_tunix.policy.files.export import write_adapter, write_merged

    trained = load_trained_policy(run, step)
    alpha = run.config.model.lora_alpha
    with _replacing(run, to, overwrite) as partial:
        if adapter:
            base, revision = _base_of(run.config.model.path or str(trained.directory))
            write_adapter(trained.policy, trained.directory, partial, alpha, base, revision)
        else:
            stored_dtype = None if dtype == "auto" else jnp.dtype(dtype)
            write_merged(trained.policy, trained.directory, partial, alpha, stored_dtype)
        if run.config.prompt.chat_template is not None and trained.tokenizer.chat_template is not None:
            # The run trained with this template. It takes precedence over the template in the model's own files.
            (partial / "chat_template.jinja").write_text(trained.tokenizer.chat_template, encoding="utf-8")
        write_prompts(run.config, partial)
        conversation = _conversation(trained.tokenizer, run.config.prompt)
        write_card(StoredRun(run.root), partial, trained.step, conversation, adapter=adapter, repository=repository)
        num_bytes = _write_manifest(partial)
    return Exported(to, trained.step, num_bytes)


def _base_of(path: str) -> tuple[str, str | None]:
    """Return the name and the revision by which PEFT loads the base model."""
    location = parse_location(path)
    return (location.name, location.revision) if location and location.scheme == "hf" else (path, None)


def _conversation(tokenizer: Tokenizer, prompt: PromptConfig) -> list[dict[str, Any]]:
    """Return the messages that the policy was prompted with, for the question `QUESTION`."""
    pieces = read_template(prompt.template or "")
    columns = {name: f"{{{name}}}" for _, name in pieces if name is not None}
    return PromptEncoder(tokenizer, prompt).messages(Example("QUESTION", columns, 1))


def _check_place(run: FoundRun, to: Path, overwrite: bool) -> None:
    """Refuse, before the long computation, a target directory that could not be written.

    Raises:
        ExportError: The directory may not be written or replaced.
    """
    if to.is_symlink() or (to.exists() and not to.is_dir()):
        raise ExportError(
            f"{to} must be a new or empty directory, but is a file or a link; choose another",
            code="export_place_taken",
        )
    if not to.is_dir() or not any(to.iterdir()):
        return
    if not overwrite:
        raise ExportError(
            f"{to} must be a new or empty directory, but is not empty; choose another, or --overwrite (in "
            "Python, overwrite=True) if it is an earlier export",
            code="export_place_taken",
        )
    _check_apart(run, to)
    if foreign := sorted(_foreign(to)):
        raise ExportError(
            f"{to} must contain only files of an earlier export, but has other or changed files: "
            f"{', '.join(foreign[:5])}{(' …' if len(foreign) > 5 else '')}; nothing was removed. Choose another "
            "directory",
            code="export_place_taken",
        )


def _check_apart(run: FoundRun, to: Path) -> None:
    """Refuse to replace a directory that the run needs: its own, or its model, which may be an earlier export.

    Raises:
        ExportError: The target contains one of these directories, or is inside one.
    """
    protected = {"the run": run.root, "its checkpoints": run.checkpoints}
    if (model := find_cached_directory(run.config.model)) is not None:
        protected["the base model of the run"] = model
    place = to.resolve()
    for what, path in protected.items():
        other = path.resolve()
        if place.is_relative_to(other) or other.is_relative_to(place):
            raise ExportError(
                f"{to} cannot be replaced, because it contains, or is inside of, {path}, where the run keeps {what}; "
                "nothing was removed. Choose another directory",
                code="export_place_taken",
            )


def _foreign(directory: Path) -> set[str]:
    """Return the files of a directory that its manifest does not list or that have changed, and empty directories."""
    here = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not _is_filled(path)}
    try:
        manifest_files = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return here
    same = {
        name
        for name in here & manifest_files.keys()
        if (directory / name).is_file() and _digest(directory / name) == manifest_files[name]
    }
    return here - same - {MANIFEST}


def _is_filled(path: Path) -> bool:
    """Return True for a directory that is not empty. Its files are checked instead."""
    return path.is_dir() and not path.is_symlink() and any(path.iterdir())


@contextlib.contextmanager
def _replacing(run: FoundRun, to: Path, overwrite: bool) -> Iterator[Path]:
    """Yield an empty directory that replaces `to` when the context ends without an error.

    Raises:
        ExportError: The directory cannot be written, or `to` may not be replaced.
    """
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{to.name}.partial-", dir=to.parent))
    except OSError as error:
        raise ExportError(
            f"the directory of {to} is not writable: {error.strerror}; choose another directory",
            code="unwritable_directory",
        ) from error
    try:
        yield partial
        sync_tree(partial)
        partial.chmod(0o777 & ~_umask())
        _check_place(run, to, overwrite)
        earlier = None
        if to.is_dir() and any(to.iterdir()):
            earlier = to.parent / f"{partial.name}.earlier"
            to.rename(earlier)
        partial.rename(to)
        sync(to.parent)
        if earlier is not None:
            shutil.rmtree(earlier, ignore_errors=True)
    except OSError as error:
        raise ExportError(
            f"{to} could not be written: {error.strerror or error}; check that the disk has free space"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_manifest(directory: Path) -> int:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    digests = {path.relative_to(directory).as_posix(): _digest(path) for path in files}
    (directory / MANIFEST).write_text(json.dumps({"files": digests}, indent=1) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
