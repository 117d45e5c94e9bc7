"""Engines that do not fit the run are refused before it samples."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.distributed import here
from agent_tunix.engines.opening import open_engines
from agent_tunix.errors import AgentTunixError, ConfigError
from agent_tunix.serving.settings import PolicySettings
from tests.raising import raises
from tests.serving.support import running


@contextlib.contextmanager
def refused(error: type[AgentTunixError], code: str, directory: Path, *, length: int = 8) -> Iterator[Config]:
    """Connect to a served policy with a context of 64 tokens, after the configuration was changed."""
    policy = SimpleNamespace(config=SimpleNamespace(vocab_size=1 << 20))
    with running(settings=PolicySettings(port=0, max_context=64)) as server:
        config = Config()
        config.engine.name, config.engine.urls = "agent_tunix", [server.url.removesuffix("/v1")]
        config.generation.max_prompt_length, config.generation.max_generation_steps = 8, length
        yield config
        with open_engines(config, directory, here()) as engines, raises(error, code):
            assert engines is not None
            engines.start(config, directory)
            engines.connect(policy, directory, [1], lambda: 0)  # type: ignore[arg-type]


def test_a_context_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with refused(ConfigError, "context_exceeded", tmp_path, length=60):
        pass


def test_a_key_that_is_not_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY_OF_ENGINES", raising=False)
    with refused(ConfigError, "missing_variable", tmp_path) as config:
        config.engine.api_key_variable = "KEY_OF_ENGINES"


def test_a_run_without_engines_opens_none(tmp_path: Path) -> None:
    with open_engines(Config(), tmp_path, here()) as engines:
        assert engines is None
