"""A run's directory, read by part; loads no JAX.

Nothing is cached: each property reads the current files.
"""

import json
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.metrics_file import read_rows
from agent_tunix.tracking.rollouts import RolloutReader


class StoredRun:
    """The directory of a run that is in progress, has ended or was killed.

    Args:
        root: The directory.

    Raises:
        RunDirectoryError: It is not the directory of a run.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            kind = "is a file" if self.root.exists() else "does not exist"
            raise RunDirectoryError(
                f"{self.root} {kind}; give the directory of a run, which contains a config.yaml", code="missing_run"
            )
        if not (self.root / "config.yaml").is_file():
            holds = ", ".join(sorted(path.name for path in self.root.iterdir())[:8]) or "nothing"
            raise RunDirectoryError(
                f"{self.root} must be the directory of a run, which contains a config.yaml, but contains {holds}",
                code="missing_run",
            )
        self._rollouts = RolloutReader(self.root / "rollouts")

    @property
    def config(self) -> Config:
        """The configuration as the run composed it; raise ConfigError if config.yaml is damaged."""
        from agent_tunix.config.compose import from_yaml

        return from_yaml(self.root / "config.yaml")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl in order; empty without a file.

        Raises:
            RunDirectoryError: The file is damaged.
        """
        path = self.root / "metrics.jsonl"
        return read_rows(path) if path.exists() else []

    @property
    def rollouts(self) -> RolloutReader:
        """The completions of the run's steps, as far as they are on disk."""
        return self._rollouts

    @property
    def environment(self) -> dict[str, Any]:
        """The run's environment: versions, devices and the reward.

        Raises:
            RunDirectoryError: environment.json is missing or damaged.
        """
        path = self.root / "environment.json"
        try:
            environment: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise RunDirectoryError(
                f"{path} must be the file that the run wrote when it started, but: {said}",
                code="damaged_run",
            ) from error
        return environment

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The reward's fingerprint from `Fingerprint.to_data`; `hash` is its short form.

        Raises:
            RunDirectoryError: environment.json is missing or damaged, or has no fingerprint.
        """
        stored: dict[str, Any] | None = self.environment.get("reward_fingerprint")
        if stored is None:
            raise RunDirectoryError(
                f"{self.root / 'environment.json'} must have the key reward_fingerprint, but does not, because it "
                "was changed; restore it",
                code="damaged_run",
            )
        return stored
