"""The trained policy of a run, for evaluation, generation and export.

Importing this module does not load JAX; `load_trained_policy` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.errors import CheckpointError
from agent_tunix.runs.found_run import FoundRun, Step

if TYPE_CHECKING:
    import jax

    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.network.decoder import Decoder


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy of a run after a step."""

    policy: Decoder  # the model with the weights of the checkpoint, adapter included
    tokenizer: Tokenizer  # tokenizer of the model that the run started with
    directory: Path  # directory of that model
    mesh: jax.sharding.Mesh  # devices that hold the policy
    step: int  # step of the checkpoint; 0 for the model before training
    max_steps: int = 0  # steps of the run; 0 for the model before training


def load_trained_policy(run: FoundRun, step: Step) -> TrainedPolicy:
    """Load the model of a run with the weights of one of its checkpoints.

    Args:
        run: The run.
        step: Step of the checkpoint; None for the latest intact one, `best` for the best, 0 for the model before
            training.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
        ModelError: The model that the run started with is missing, or another one has replaced it.
    """
    from agent_tunix.planning.open_mesh import open_mesh
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.families import read_architecture
    from agent_tunix.policy.files.directory import find_model_directory
    from agent_tunix.policy.files.model_digest import digest_model
    from agent_tunix.policy.model import load_policy
    from agent_tunix.runs.weights.base_model import METADATA_KEY, check_base, recorded_digest
    from agent_tunix.runs.weights.checkpoints import Checkpoints
    from agent_tunix.runs.weights.initial import load_initial
    from agent_tunix.runs.weights.state import read_weights, write_weights

    config = run.config
    directory = find_model_directory(config.model)
    now = digest_model(directory)
    if step == 0:
        check_base(config, directory, recorded_digest(run.root), now, weights_matter=True)
    tokenizer = Tokenizer(directory, config.prompt)
    mesh = open_mesh(config, read_architecture(directory), num_rows=None)
    policy = load_policy(directory, config.model, mesh, config.seed)
    if step == 0:
        load_initial(config, policy)
        return TrainedPolicy(policy, tokenizer, directory, mesh, 0)
    checkpoints = Checkpoints(run.checkpoints, config.training.max_checkpoints_to_keep)
    if step == "best" and (step := checkpoints.best_step()) is None:
        raise CheckpointError(
            f"{run.checkpoints} has no best checkpoint; train with stopping.metric=eval/accuracy, or choose one of "
            f"the steps {checkpoints.steps()}",
            code="no_checkpoint",
        )
    like = {"weights": read_weights(policy)}
    restored = checkpoints.restore_latest(like) if step is None else checkpoints.restore(step, like)
    if restored is None:
        raise CheckpointError(
            f"{run.checkpoints} has no checkpoint; use step=0 for the model before training", code="no_checkpoint"
        )
    check_base(config, directory, restored.metadata.get(METADATA_KEY), now, weights_matter=False)
    write_weights(policy, restored.state["weights"])
    metadata = restored.metadata
    return TrainedPolicy(
        policy,
        tokenizer,
        directory,
        mesh,
        restored.step,
        max_steps=int(metadata.get("max_steps", 0)),
    )
