"""The engines of a run, opened and closed with it. Importing this module does not load their packages."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.config.schema import Config

if TYPE_CHECKING:
    from agent_tunix.engines.session import EngineSession
    from agent_tunix.engines.sync import ProcessGroup


@contextlib.contextmanager
def open_engines(config: Config, root: Path, processes: "ProcessGroup") -> "Iterator[EngineSession | None]":
    """Yield the engines of a run, which are closed with it; None if this process samples.

    Args:
        config: The configuration.
        root: Directory of the run.
        processes: The processes of the run.

    Raises:
        ConfigError: A package is missing.
    """
    if config.engine.name == "none":
        yield None
        return
    from agent_tunix.engines.session import EngineSession

    with contextlib.ExitStack() as resources:
        yield EngineSession(config, root / "engine", processes, resources)
