"""Runs in this process, started or resumed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.api.objects import Objects
from agent_tunix.errors import ConfigError, Interrupted
from agent_tunix.tracking.callbacks import Callback

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config
    from agent_tunix.tracking.stored_run import StoredRun
    from agent_tunix.training.launch import Method


def check_arguments(overrides: Sequence[str], callbacks: Sequence[Callback]) -> None:
    """Check the types of arguments before anything is done.

    Raises:
        ConfigError: An override is no text, or something in `callbacks` is no callback.
    """
    if other := [one for one in overrides if not isinstance(one, str)]:
        raise ConfigError(
            f"an override must be a string KEY=VALUE, not {type(other[0]).__name__}; write a list as *LIST",
            code="invalid_override",
        )
    listed = callbacks if isinstance(callbacks, list | tuple) else [None]
    if not all(isinstance(one, Callback) for one in listed):
        raise ConfigError(
            "callbacks must be a list of instances of classes that derive from agent_tunix.Callback, but is "
            f"{callbacks!r}; write [MyCallback()]"
        )


def prepare() -> None:
    """Use the `conf/` and the `.env` of the working directory."""
    from agent_tunix.config.working_directory import find_own_conf, load_env_file

    find_own_conf()
    load_env_file()


def run_here(
    config: "Config", root: Path, overrides: Sequence[str], method: "Method", callbacks: Sequence[Callback]
) -> None:
    """Train with a composed configuration in this process."""
    from agent_tunix.startup import garbage, timeline
    from agent_tunix.training.launch import launch

    try:
        with timeline.begin(), garbage.rarely_sought():
            launch(config, root, overrides, method=method, callbacks=callbacks, in_python=True)
    except Interrupted as error:
        error.finish()  # writes the report
        raise


def resume_run(stored: "StoredRun", overrides: Sequence[str], objects: Objects, callbacks: Sequence[Callback]) -> None:
    """Continue a run from its last checkpoint; `objects` are those that this process has not registered."""
    from agent_tunix.config import compose
    from agent_tunix.tracking.outcome import read_outcome

    check_arguments(overrides, callbacks)
    prepare()
    method: Method = stored.environment.get("method", "grpo")
    config = objects.named_in(compose.with_overrides(stored.config, [*overrides, "training.resume=true"]))
    all_overrides = [*read_outcome(stored.root).overrides, *overrides]
    run_here(config, stored.root, all_overrides, method, callbacks)
