"""Whether the model that a run began with is still the one in its directory. Importing it loads no JAX.

A checkpoint holds the weights that train. Those of an adapter mean nothing on other frozen weights, so another model is
refused; where all weights train, the directory gives no more than the architecture, the reference policy and step 0.
"""

import logging
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.errors import ModelError, RunDirectoryError
from agent_tunix.policy.files.model_digest import architecture_of
from agent_tunix.tracking.stored_run import StoredRun

_LOGGER = logging.getLogger("agent_tunix.run")
# Checkpoints and environment.json of earlier versions have none.
METADATA_KEY = "model_digest"


def recorded_digest(root: Path) -> str | None:
    """The digest of the model that a run began with; None where nothing recorded it.

    Args:
        root: The run's directory.
    """
    try:
        model = StoredRun(root).environment.get("model")
    except RunDirectoryError:
        return None
    digest = model.get("digest") if isinstance(model, dict) else None
    return digest if isinstance(digest, str) else None


def check_base(config: Config, directory: Path, before: str | None, now: str, *, weights_matter: bool) -> None:
    """Refuse another model under an adapter, and warn of one where all weights are the checkpoint's.

    Args:
        config: The run's.
        directory: Where its model lies.
        before: The digest of the model that it began with; None where nothing recorded it, which is accepted.
        now: That of the model in the directory.
        weights_matter: Whether other weights are worth a warning too, where the run trains all of them.

    Raises:
        ModelError: The run trains an adapter, and the model is not the one that it was trained on.
    """
    if before is None or before == now:
        return
    found = f"its model had the digest {before}, but what lies in {directory} now has {now}"
    if config.model.lora_rank > 0:
        raise ModelError(
            f"the run trains an adapter of a model that is no longer there: {found}. On other weights the adapter"
            f" computes something else; put the model that the run began with back into {directory}",
            code="base_model_replaced",
        )
    if architecture_of(before) != architecture_of(now):
        _LOGGER.warning(
            "%s: its config.json describes another architecture, in which the trained weights may compute something"
            " else; restore the one that the run began with",
            found,
        )
    elif weights_matter:
        _LOGGER.warning(
            "%s; the trained weights are those of the checkpoint, but the model before training, and a reference policy"
            " that stays, are of other weights",
            found,
        )
