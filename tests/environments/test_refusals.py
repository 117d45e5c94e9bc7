"""Environments that cannot be used: the error names the library or the place, and what to write instead."""

import sys
from pathlib import Path

import pytest

from agent_tunix.environments import EnvironmentAdapter, resolve_environment
from agent_tunix.errors import InvalidEnvironmentError
from tests.raising import raises

SKYRL = """
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType


class Env(BaseTextEnv):
    def __init__(self, env_config, extras={}):
        super().__init__()

    def step(self, action: str) -> BaseTextEnvStepOutput:
        return BaseTextEnvStepOutput(observations=[], reward=1.0, done=True, metadata={})
"""
DUCK = """
class Env:
    def init(self, prompt):
        return prompt, {}

    def step(self, action: str):
        return {"observations": [], "reward": 1.0, "done": True, "metadata": {}}
"""
SWIFT = """
from swift.rollout.gym_env import Env as Base, envs


class Env(Base):
    async def reset(self, config):
        return "go", {}, "You play."

    async def step(self, action):
        return "next", 1.0, True, {}


envs["game"] = Env
"""
OPENENV = """
from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment


class Env(MCPEnvironment):
    def __init__(self):
        super().__init__(FastMCP("echo"))

    def reset(self, seed=None, **kwargs):
        return None

    def _step_impl(self, action):
        return None
"""
HARNESS = """
from benchmax.envs import Environment, RolloutRequest


class Env(Environment[dict, dict]):
    async def run_rollout(self, request: RolloutRequest[dict]):
        return None
"""
LOOP = """
from benchmax.envs import BaseEnv


class Env(BaseEnv):
    async def run_rollout(self, request):
        return None

    async def compute_reward(self, rollout):
        return {"right": 1.0}
"""
OWN = """
class MCPEnvironment:
    def reset(self):
        return "go"

    def step(self, action):
        return "", 1.0, True, {}


class Env(MCPEnvironment):
    pass
"""
TOOLS = """
class Env:
    def init(self) -> str:
        return "begun"

    def step(self, to: str) -> str:
        return to

    def get_reward(self):
        return 1.0
"""


def resolve(directory: Path, text: str, name: str = "Env") -> EnvironmentAdapter:
    (directory / "theirs.py").write_text(text)
    return resolve_environment(f"theirs.py:{name}", working_directory=directory)


@pytest.mark.parametrize(
    ("text", "library"),
    [
        (SKYRL, "SkyRL"),
        (DUCK, "SkyRL"),
        (SWIFT, "ms-swift"),
        (OPENENV, "MCPEnvironment"),
        (HARNESS, "run_rollout"),
        (LOOP, "run_rollout"),
    ],
)
def test_an_environment_of_a_library_is_refused_by_name(text: str, library: str, tmp_path: Path) -> None:
    with raises(InvalidEnvironmentError, "unsupported_library") as raised:
        resolve(tmp_path, text)
    assert library in str(raised.value)
    assert "install" not in str(raised.value)


def test_an_installed_library_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "openenv" / "core" / "env_server"
    package.mkdir(parents=True)
    (package / "mcp_environment.py").write_text("class MCPEnvironment:\n    def __init__(self, server): ...\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with raises(InvalidEnvironmentError, "unsupported_library"):
        resolve(tmp_path, OPENENV)
    for name in [name for name in sys.modules if name.partition(".")[0] == "openenv"]:
        del sys.modules[name]


@pytest.mark.parametrize(("text", "convention"), [(OWN, "text"), (TOOLS, "class")])
def test_equal_names_are_no_sign_of_a_library(text: str, convention: str, tmp_path: Path) -> None:
    assert resolve(tmp_path, text).convention == convention


def test_a_class_that_does_not_score_says_what_it_lacks(tmp_path: Path) -> None:
    with raises(InvalidEnvironmentError, "invalid_environment", "compute_reward"):
        resolve(tmp_path, "from benchmax.envs import BaseEnv\n\n\nclass Env(BaseEnv):\n    max_turns = 1\n")
