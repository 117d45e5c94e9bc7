"""`training.init_checkpoint`: a run that starts with the weights of another run, for policy and reference policy.

The value is `RUN`, `RUN:STEP` or `RUN:best`. Before training it is replaced by an absolute path with a step number, and
config.yaml stores this form. So a resumed run starts with the same weights even if the other run has gone on.
"""

import contextlib
import dataclasses
import hashlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.runs.found_run import FoundRun, find_run

if TYPE_CHECKING:
    from flax import nnx

_LOGGER = logging.getLogger("agent_tunix.run")
_KEY = "training.init_checkpoint"
_WITH_STEP = re.compile(r"(?P<run>.+):(?P<step>\d+|best)")


def pin_initial(config: Config, root: Path) -> Config:
    """Return the configuration with the absolute path of the other run and the number of the step.

    Args:
        config: The run's.
        root: Directory of the run, or of the one that it continues. A resumed run reads its earlier choice there.

    Raises:
        ConfigError: The value does not name a run.
        CheckpointError: The run has no such checkpoint, or none at all.
    """
    given = config.training.init_checkpoint
    if given is None:
        return config
    run, step = find_initial(given)
    resumes = config.training.resume or config.training.continue_from is not None
    if step in (None, "best") and resumes and (root / "config.yaml").is_file():
        before = None
        with contextlib.suppress(ConfigError):  # damaged, of which the run warns
            before = from_yaml(root / "config.yaml").training.init_checkpoint
        if before is not None and before.rpartition(":")[0] == str(run.root):
            return _with(config, before)
    return _with(config, f"{run.root}:{_choose_step(run, step)}")


def _with(config: Config, initial: str) -> Config:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, init_checkpoint=initial))


def find_initial(given: str, key: str = _KEY) -> tuple[FoundRun, str | None]:
    """Return the run that a value of `training.init_checkpoint` names, and the step as text; None without one.

    An existing directory may have a colon in its name.

    Args:
        given: The value.
        key: The key that gave it, for the error message.

    Raises:
        ConfigError: The value does not name a run.
    """
    found = _WITH_STEP.fullmatch(given)
    if found is None or Path(given).expanduser().exists():
        return find_run(given, key), None
    return find_run(found["run"], key), found["step"]


def _choose_step(run: FoundRun, step: str | None) -> int:
    from agent_tunix.runs.weights.checkpoints import Checkpoints

    checkpoints = Checkpoints(run.checkpoints, run.config.training.max_checkpoints_to_keep)
    steps = checkpoints.steps()
    if not steps:
        raise CheckpointError(f"{_KEY}={run.root}: the run has no checkpoint", code="no_checkpoint")
    if step is None:
        return steps[-1]
    if step == "best":
        best = checkpoints.best_step()
        if best is None:
            raise CheckpointError(
                f"{_KEY}={run.root}:best: the run has no best checkpoint; there are {steps}", code="no_checkpoint"
            )
        return best
    if int(step) not in steps:
        raise CheckpointError(
            f"{_KEY}={run.root}:{step}: the run has no checkpoint of this step; there are {steps}",
            code="no_checkpoint",
        )
    return int(step)


def load_initial(config: Config, policy: "nnx.Module") -> None:
    """Load the weights of `training.init_checkpoint`, if it is set, into a new policy.

    Raises:
        ConfigError: The other run trained an adapter of another scale or model, or only one of the two runs trains an
            adapter.
        CheckpointError: The checkpoint is missing or damaged, or its weights do not fit this policy.
    """
    given = config.training.init_checkpoint
    if given is None:
        return
    from agent_tunix.runs.weights.checkpoints import Checkpoints
    from agent_tunix.runs.weights.state import read_weights, write_weights

    run, step = find_initial(given)
    _check_same_model(config, run)
    checkpoints = Checkpoints(run.checkpoints, run.config.training.max_checkpoints_to_keep)
    try:
        restored = checkpoints.restore(_choose_step(run, step), {"weights": read_weights(policy)})
    except CheckpointError as error:
        raise CheckpointError(
            f"{_KEY}={given}: {error}. Both runs must train the same model with the same model.lora_rank; otherwise "
            f"run `agent-tunix export {run.root} --to DIR` and set model.path=DIR",
            code=error.code,
        ) from error
    write_weights(policy, restored.state["weights"])


def _check_same_model(config: Config, run: FoundRun) -> None:
    """Refuse an adapter of another scale or another model.

    An adapter is meaningless without the scale and the frozen weights that it was trained with. Another quantization
    of the same model only gives a warning.

    Raises:
        ConfigError: The runs differ in one of these, or only one of them trains an adapter.
    """
    from agent_tunix.policy.files.directory import find_model_directory
    from agent_tunix.policy.files.model_digest import digest_model
    from agent_tunix.runs.weights.base_model import recorded_digest

    here, there = config.model, run.config.model
    if (here.lora_rank > 0) != (there.lora_rank > 0):
        raise ConfigError(
            f"{_KEY}={run.root} was trained with model.lora_rank={there.lora_rank}, but this run has "
            f"{here.lora_rank}: an adapter cannot initialise a whole model, nor a whole model an adapter; run "
            f"`agent-tunix export {run.root} --to DIR` and set model.path=DIR",
            code="adapter_mismatch",
        )
    if here.lora_rank == 0:
        return
    if here.lora_alpha != there.lora_alpha:
        raise ConfigError(
            f"{_KEY}={run.root} was trained with model.lora_alpha={there.lora_alpha:g}, but this run has "
            f"{here.lora_alpha:g}; set model.lora_alpha={there.lora_alpha:g}",
            code="adapter_mismatch",
        )
    if here.quantization != there.quantization:
        _LOGGER.warning(
            "%s=%s was trained on a base with model.quantization=%s, but this run uses %s; the base is rounded "
            "differently and does not match the adapter exactly",
            _KEY,
            run.root,
            there.quantization or "null",
            here.quantization or "null",
        )
    # The other run's model may have been replaced, so its recorded digest counts. Earlier versions recorded none.
    theirs = recorded_digest(run.root) or digest_model(find_model_directory(there))
    if (ours := digest_model(find_model_directory(here))) != theirs:
        raise ConfigError(
            f"{_KEY}={run.root} requires the model that its adapter was trained on,"
            f" {there.path or 'the embedded one'}, but model.path is {here.path or 'the embedded one'} (their digests"
            f" are {theirs} and {ours}); set model.path to that model",
            code="adapter_mismatch",
        )


def describe_initial(config: Config) -> dict[str, Any] | None:
    """Return the entry of `environment.json` about the initial weights; None if training starts from `model.path`."""
    given = config.training.init_checkpoint
    if given is None:
        return None
    run, step = find_initial(given)
    manifest = run.checkpoints / f"step_{int(step or 0):06d}" / "manifest.json"
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()[:16] if manifest.is_file() else None
    return {"run": str(run.root), "step": None if step is None else int(step), "manifest": digest}
