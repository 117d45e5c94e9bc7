"""A run that cannot fit ends before its model is loaded."""

from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import ConfigError
from agent_tunix.runs.preflight import preflight
from agent_tunix.training import components
from tests.training.support import small_run


def test_a_cache_without_room_is_refused_before_the_weights_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any) -> None:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr(components, "load_policy", load)
    config = small_run("generation.max_generation_steps=200000000")
    preflight(config, Path.cwd())
    with pytest.raises(ConfigError, match=r"200000000.* lower .*batch_size"):
        components.build_components(config)
