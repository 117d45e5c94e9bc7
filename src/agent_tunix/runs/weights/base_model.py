"""Check that the model directory still holds the model that a run started with. Importing it does not load JAX.

A checkpoint holds only the weights that train. An adapter is meaningless on other frozen weights, so another model is
refused. If all weights train, the directory only gives the architecture, the reference policy and step 0, so another
model gives a warning.
"""

import logging
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.errors import ModelError, RunDirectoryError
from agent_tunix.policy.files.model_digest import architecture_of
from agent_tunix.tracking.stored_run import StoredRun

_LOGGER = logging.getLogger("agent_tunix.run")
# Checkpoints of earlier versions do not have this key.
METADATA_KEY = "model_digest"


def recorded_digest(root: Path) -> str | None:
    """Return the digest of the model that a run started with; None if it was not recorded.

    Args:
        root: Directory of the run.
    """
    try:
        model = StoredRun(root).environment.get("model")
    except RunDirectoryError:
        return None
    digest = model.get("digest") if isinstance(model, dict) else None
    return digest if isinstance(digest, str) else None


def check_base(config: Config, directory: Path, before: str | None, now: str, *, weights_matter: bool) -> None:
    """Refuse another model if the run trains an adapter; warn about it if the run trains all weights.

    Args:
        config: The run's.
        directory: Directory of the model.
        before: Digest of the model that the run started with; None if it was not recorded, which is accepted.
        now: Digest of the model in the directory.
        weights_matter: True to warn about other weights of the same architecture too, if the run trains all weights.

    Raises:
        ModelError: The run trains an adapter, and the model is not the one that it was trained on.
    """
    if before is None or before == now:
        return
    found = f"its model had the digest {before}, but the model in {directory} now has {now}"
    if config.model.lora_rank > 0:
        raise ModelError(
            f"resuming an adapter requires its base model, but {found}. With other weights the adapter computes "
            f"something else; restore the original model in {directory}",
            code="adapter_mismatch",
        )
    if architecture_of(before) != architecture_of(now):
        _LOGGER.warning(
            "%s: its config.json describes another architecture, in which the trained weights may compute something "
            "else; restore the original one",
            found,
        )
    elif weights_matter:
        _LOGGER.warning(
            "%s; the trained weights come from the checkpoint, but the model before training and a fixed reference "
            "policy have other weights",
            found,
        )
