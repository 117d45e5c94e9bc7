"""The content of a checkpoint: training state as a flat mapping of names to arrays, and metadata.

The state is the weights that train, the optimizer's state (its counters are the schedule's position), and the reference
policy if it moves. Nothing else is stored: the data position and the sampling keys follow from the step and the seed,
and frozen weights and a fixed reference policy come from the model directory.
"""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from agent_tunix.config.schema import Config
from agent_tunix.grpo.optimizer_state import read_optimizer, write_optimizer
from agent_tunix.grpo.reference import ReferencePolicy, trained_kind
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.rewards import Fingerprint
from agent_tunix.rewards.fingerprint import changes
from agent_tunix.runs.weights.base_model import METADATA_KEY
from agent_tunix.runs.weights.checkpoints import State

_PROMPTS_CHANGED = (
    "the prompts have other tokens than before: the chat template, prompt.system, prompt.template, prompt.few_shot or"
    " the tokenizer changed"
)

# Names in the metadata → names in the configuration, where they differ.
_KEYS = {
    "batch_size": "training.batch_size",
    "num_generations": "grpo.num_generations",
    "advantage_scaling": "grpo.advantage_scaling",
    "reference_sync_steps": "grpo.reference_sync_steps",
    "max_steps": "the number of steps (training.num_batches, training.num_epochs)",
}


def read_state(updater: PolicyUpdater, reference: ReferencePolicy | None) -> dict[str, dict[str, jax.Array]]:
    """Return the arrays of a checkpoint by name: `weights` that train, `optimizer`, and `reference` if it moves.

    Args:
        updater: Trains the policy.
        reference: The reference policy if it moves, else None.
    """
    state = {"weights": read_weights(updater.policy), "optimizer": _named(read_optimizer(updater.optimizer))}
    if reference is not None:
        state["reference"] = read_weights(reference.model)
    return state


def write_state(updater: PolicyUpdater, reference: ReferencePolicy | None, state: State) -> None:
    """Load the arrays that `read_state` returned."""
    write_weights(updater.policy, state["weights"])
    read = _unnamed(read_optimizer(updater.optimizer), state["optimizer"])
    write_optimizer(updater.optimizer, read, updater.accumulation)
    if reference is not None:
        write_weights(reference.model, state["reference"])


def read_weights(model: nnx.Module) -> dict[str, jax.Array]:
    """Return name → array of every weight that trains."""
    return _named(nnx.state(model, trained_kind(model)))


def write_weights(model: nnx.Module, arrays: Mapping[str, jax.Array]) -> None:
    """Load arrays of `read_weights` into the model."""
    nnx.update(model, _unnamed(nnx.state(model, trained_kind(model)), arrays))


def _named(tree: Any) -> dict[str, jax.Array]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _unnamed(like: Any, arrays: Mapping[str, jax.Array]) -> Any:
    """Return a tree of the named arrays with the shardings of the arrays they replace.

    Another sharding would make JAX compile another program.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    placed = [jax.device_put(arrays[jax.tree_util.keystr(path)], leaf.sharding) for path, leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, placed)


def make_metadata(
    config: Config, reward: Fingerprint, prompts: str, model: str, teacher: str | None, max_steps: int
) -> dict[str, Any]:
    """Return the metadata of a checkpoint about its run, which `changed_since` reads.

    The session adds the fingerprint of the training rows, the initial weights and the pass rates of rows and sets.

    Args:
        config: The run's.
        reward: Fingerprint of the reward.
        prompts: Fingerprint from `fingerprint_prompts`.
        model: Digest of the model that the run started with.
        teacher: Digest of the teacher, `self` for the policy; None without one.
        max_steps: Number of steps of the run.
    """
    return {
        "seed": config.seed,
        "batch_size": config.training.batch_size,
        "num_generations": config.grpo.num_generations,
        "advantage_scaling": config.grpo.advantage_scaling,
        "reference_sync_steps": config.grpo.reference_sync_steps,
        "max_steps": max_steps,
        "prompts": prompts,
        METADATA_KEY: model,
        "reward": reward.to_data(),
        "teacher": None
        if teacher is None
        else {
            "digest": teacher,
            "coefficient": config.grpo.teacher_coefficient,
            "top_k": config.grpo.teacher_top_k,
            "prompt": config.grpo.teacher_prompt,
        },
    }


def changed_since(metadata: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return one line for each setting that has changed since the checkpoint, except reward, weights and teacher."""
    # Older checkpoints do not have these keys.
    before = {"reference_sync_steps": 0, "prompts": now.get("prompts")} | metadata
    return [
        _PROMPTS_CHANGED
        if name == "prompts"
        else f"{_KEYS.get(name, name)} was {before.get(name)!r} and is now {value!r}"
        for name, value in now.items()
        if name not in ("reward", "teacher", "initial", METADATA_KEY) and before.get(name) != value
    ]


def teacher_changed_since(metadata: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return one line for each difference between the teacher and that of the checkpoint."""
    before, found = metadata.get("teacher") or {}, now["teacher"] or {}
    return [
        f"its {name} was {before.get(name)!r} and is now {found.get(name)!r}"
        for name in dict.fromkeys([*before, *found])
        if before.get(name) != found.get(name)
    ]


def initial_changed_since(metadata: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return how the weights that a run started with differ from those of the checkpoint; None if they do not."""
    if "initial" not in metadata:  # an older checkpoint
        return None
    before, found = metadata["initial"], now["initial"]
    if (before or {}).get("manifest") == (found or {}).get("manifest"):
        return None
    return f"it was {_describe_initial(before)} and is now {_describe_initial(found)}"


def _describe_initial(initial: dict[str, Any] | None) -> str:
    return "null" if initial is None else f"{initial['run']}:{initial['step']}"


def reward_changed_since(metadata: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return one line for each difference between the reward and that of the checkpoint."""
    return changes(metadata.get("reward"), now["reward"])
