"""Runs of one's own and of others: what another's run names is listed, and used only with trust."""

import copy
import functools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.raising import raises
from tests.rewards.conventions.test_entry_points import install
from tests.tiers import slow_after
from tests.tracking.report.support import default_config, write_run

from agent_tunix.cli import main
from agent_tunix.config.compose import from_yaml, with_overrides
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import UntrustedRunError
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.trust import is_own_run, record_run, reward_parts

SECRET = "sk-of-the-user"
CODE = """\
import os, pathlib
pathlib.Path(os.environ["CANARY"]).write_text("used")
def reward(response, **columns):
    return 1.0
"""


class World:
    """A run of others, `here/run`. The user works in `here`; code that the run names leaves the file `canary`."""

    def __init__(self, directory: Path, run: Path) -> None:
        self.here, self.run = directory / "here", directory / "here" / "run"
        self.elsewhere = directory / "elsewhere"
        self.canary = directory / "canary"
        shutil.copytree(run, self.run)
        self.elsewhere.mkdir()
        (self.elsewhere / "code.py").write_text(CODE)

    def configure(self, changes: dict[str, Any]) -> None:
        """Change values of the run's configuration."""
        config = copy.deepcopy(default_values())
        for key, value in changes.items():
            *groups, name = key.split(".")
            inner = config
            for group in groups:
                inner = inner[group]
            inner[name] = value
        (self.run / "config.yaml").write_text(yaml.safe_dump(config))

    @property
    def config(self) -> Config:
        return from_yaml(self.run / "config.yaml")


@functools.cache
def default_values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(default_config())
    return values


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that each test copies."""
    return write_run(tmp_path_factory.mktemp("written") / "run").root


@pytest.fixture
def world(tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, written)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("SECRET_OF_MINE", SECRET)
    monkeypatch.setenv("CANARY", str(world.canary))
    monkeypatch.chdir(world.here)
    return world


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def is_refused(result: Result) -> bool:
    assert SECRET not in result.output
    return result.exit_code == 2 and result.stderr.startswith("UntrustedRunError: ") and "--trust" in result.stderr


def listed(**request: Any) -> str:
    """Return the error of an evaluation of the run."""
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        read_request(EvaluateConfig(checkpoint_dir="run", **request))
    return str(refusal.value)


# --- runs of others ---------------------------------------------------------------------------------------------------

JUDGE = {"model": "m", "rubric": "r"}
# FILE stands for a file outside the run. Each with a text that the list of parts has.
NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "a file": ({"training.reward_function": "FILE:reward"}, "runs the Python file FILE:reward"),
    "a judge": (
        {
            "reward.components": {
                "tone": {"function": "judge", "args": {**JUDGE, "base_url": "http://127.0.0.1:9", "api_key_env": "S"}}
            }
        },
        "tone: asks a model over the network: base_url=http://127.0.0.1:9",
    ),
    "a module of the working directory": ({"training.reward_function": "code_here.reward"}, "module code_here.reward"),
    "rewards.modules": ({"rewards.modules": ["FILE", "code_here"]}, "rewards.modules: runs the Python file FILE"),
    "custom_rewards.py": ({"training.reward_function": "mystery_custom"}, "imports custom_rewards.py"),
    "a file of conf/reward": ({"training.reward_function": "mystery_composite"}, "runs the Python file"),
    "an entry point": ({"training.reward_function": "mystery_installed"}, "runs code of an installed package"),
    "a list": ({"training.reward_function": ["math", "FILE:reward"]}, "runs the Python file"),
    "a judge by rewards.args": (
        {"training.reward_function": "judge", "rewards.args": {"judge": {**JUDGE, "base_url": "http://127.0.0.1:9"}}},
        "base_url=http://127.0.0.1:9",
    ),
    "a reward model's Python": (
        {"reward.components": {"rm": {"function": "reward_model", "args": {"path": "x/y", "python": "FILE"}}}},
        "rm: loads a model with torch: python=FILE",
    ),
    "an upload without isolation": (
        {"training.reward_function": "rf_" + "a" * 24, "rewards.allow_unsandboxed": True},
        "runs uploaded code without isolation",
    ),
}


@pytest.mark.parametrize("name", slow_after(3, NAMED))
def test_what_a_run_of_others_names_is_listed_and_not_used(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, expected = NAMED[name]
    for file in ("run/code.py", "code_here.py", *(("custom_rewards.py",) if "custom" in name else ())):
        (world.here / file).write_text(CODE)
    (world.here / "conf" / "reward").mkdir(parents=True)
    composite = {"components": {"a": {"function": f"{world.elsewhere / 'code.py'}:reward"}}}
    (world.here / "conf" / "reward" / "mystery_composite.yaml").write_text(yaml.safe_dump(composite))
    (site := world.here.parent / "site").mkdir()
    install(site, "installed", "", "mystery_installed = code_here:reward\n")
    monkeypatch.syspath_prepend(site)
    file = str(world.elsewhere / "code.py")
    world.configure(json.loads(json.dumps(changes).replace("FILE", file)))
    for command in (["rewards", "replay", "run"], ["rewards", "diff", "run", "math"]):
        result = invoke(*command)
        assert is_refused(result), result.output
        assert expected.replace("FILE", file) in result.stderr
    assert expected.replace("FILE", file) in listed(with_rewards=True)
    assert not world.canary.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"environment.mcp": [{"command": "python code.py", "env": {"A": "b"}}]},
            "environment.mcp.0: runs the command A=b python code.py, in ",
        ),
        (
            {"environment.mcp": [{"url": "http://127.0.0.1:9/mcp"}]},
            "environment.mcp.0: sends tool calls to the MCP server http://127.0.0.1:9/mcp",
        ),
        ({"environment.name": "code_here.Game"}, "environment.name: imports and runs the Python module code_here.Game"),
        (
            {"environment.agent.function": "code_here.py:solve"},
            "environment.agent.function: runs the Python file code_here.py:solve",
        ),
        (
            {"environment.agent.command": "python code.py"},
            "environment.agent.command: runs the command python code.py, in ",
        ),
        ({"environment.tools": ["code_here.py:tool"]}, "environment.tools.0: runs the Python file code_here.py:tool"),
        ({"data.source": "tfds", "data.path": "mystery"}, "data: imports a dataset by its name, mystery"),
        ({"data.source": "verifiers", "data.path": "mystery"}, "data: imports a dataset by its name, mystery"),
        (
            {"data.source": "verifiers", "data.path": "mystery", "environment.name": "verifiers:mystery"},
            "environment.name: imports and runs the Python module mystery",
        ),
        (
            {"data.source": "synthetic", "data.mixture": {"a": {"source": "tfds", "path": "mystery"}}},
            "data.mixture.a: imports a dataset by its name, mystery",
        ),
        ({"evaluation.correct": "run/code.py:reward"}, "evaluation.correct: runs the Python file run/code.py:reward"),
        ({"evaluation.correct": "mystery", "rewards.modules": ["code_here"]}, "rewards.modules: imports and runs"),
        ({"evaluation.correct": "reward", "training.reward_function": "run/code.py:reward"}, "runs the Python file"),
        ({"evaluation.correct": "judge"}, "judge: asks a model over the network"),
    ],
)
def test_what_an_evaluation_of_a_run_of_others_would_use_is_listed(
    changes: dict[str, Any], expected: str, world: World
) -> None:
    for file in ("run/code.py", "code_here.py"):
        (world.here / file).write_text(CODE)
    world.configure(changes)
    assert expected in listed()
    assert not world.canary.exists()


def test_the_other_run_of_a_comparison_needs_trust_too(world: World) -> None:
    world.configure({"data.source": "tfds", "data.path": "mystery"})
    own = write_run(world.here / "own")
    record_run(own.root)
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="own", compare_with="run"))


@pytest.mark.parametrize(
    "keys",
    [
        {"grpo.advantage_scaling": "run/code.py:reward"},
        {"grpo.advantage_scaling": "mystery", "grpo.modules": ["run/code.py"]},
    ],
)
def test_the_advantage_estimator_of_a_run_of_others_needs_trust(keys: dict[str, Any], world: World) -> None:
    (world.run / "code.py").write_text(CODE)
    world.configure({"training.reward_function": "math", **keys})
    assert is_refused(invoke("rewards", "replay", "run", "--reward", "math"))
    assert is_refused(invoke("rewards", "diff", "math", "format", "--run", "run"))
    replayed = invoke("rewards", "replay", "run", "--reward", "math", "grpo.advantage_scaling=none")
    assert replayed.exit_code == 1  # the user's own choice of another estimator needs no trust
    assert not world.canary.exists()
    invoke("rewards", "replay", "run", "--reward", "math", "--trust")
    assert world.canary.exists()


def test_trust_is_of_one_command(world: World) -> None:
    world.configure({"training.reward_function": f"{world.elsewhere / 'code.py'}:reward"})
    assert invoke("rewards", "diff", "run", "math", "--trust").exit_code == 1
    assert world.canary.read_text() == "used"
    assert is_refused(invoke("rewards", "diff", "run", "math"))
    assert read_request(EvaluateConfig(checkpoint_dir="run", with_rewards=True, trust=True)).mixture is not None


@pytest.mark.slow
def test_what_uses_no_code_of_the_run_needs_no_trust(world: World) -> None:
    world.configure({"training.reward_function": f"{world.elsewhere / 'code.py'}:reward"})
    assert invoke("report", "run").exit_code == 0
    assert invoke("compare", "run").exit_code == 0
    assert invoke("rewards", "replay", "run", "--reward", "math").exit_code == 1  # its totals are of another reward
    read_request(EvaluateConfig(checkpoint_dir="run"))
    assert not world.canary.exists()


def test_built_in_rewards_and_isolated_uploads_of_others_need_no_trust(world: World) -> None:
    world.configure({"reward.components": {"correct": "math", "tags": {"function": "format", "weight": 0.5}}})
    assert invoke("rewards", "replay", "run").exit_code == 1
    assert invoke("rewards", "diff", "run", "math").exit_code == 1
    world.configure({"training.reward_function": "rf_" + "a" * 24})
    assert reward_parts(world.config, world.here) == []


def test_a_reward_of_the_users_own_needs_no_trust(world: World) -> None:
    (world.run / "code.py").write_text(CODE)
    (world.here / "mine.py").write_text("def right(response):\n    return 1.0\n")
    world.configure({"evaluation.correct": "run/code.py:reward", "rewards.modules": ["run/code.py"]})
    assert read_request(EvaluateConfig(checkpoint_dir="run", correct="mine.py:right")).correct is not None
    assert not world.canary.exists()


def test_a_run_of_others_does_not_decide_where_a_name_of_the_user_is_looked_up(world: World) -> None:
    (world.elsewhere / "custom_rewards.py").write_text(CODE)
    (world.run / "environment.json").write_text(json.dumps({"working_directory": str(world.elsewhere)}))
    world.configure({})
    assert str(world.elsewhere) in listed(correct="mine")
    assert not world.canary.exists()


def test_a_run_of_others_does_not_allow_the_users_uploads_without_isolation(world: World) -> None:
    world.configure({"rewards.allow_unsandboxed": True})
    upload = "rf_" + "a" * 24
    assert is_refused(invoke("rewards", "replay", "run", "--reward", upload))
    own = with_overrides(Config(), [f"training.reward_function={upload}", "rewards.allow_unsandboxed=true"])
    assert [part.kind for part in reward_parts(own, world.here)] == ["uploaded"]


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the keys that it receives."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(str(self.headers.get("Authorization")))
            self.send_response(400)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", keys
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_judge_of_others_gets_no_key_without_trust(world: World, endpoint: tuple[str, list[str]]) -> None:
    url, keys = endpoint
    args = {**JUDGE, "base_url": url, "api_key_env": "SECRET_OF_MINE"}
    world.configure({"reward.components": {"tone": {"function": "judge", "args": args}}})
    replay = ("rewards", "replay", "run", "--steps", "1:1")
    assert is_refused(invoke(*replay))
    own = f"reward.components.tone.args.base_url={url}"
    result = invoke(*replay, own)  # the key is still that of the run
    assert is_refused(result)
    assert "api_key_env=SECRET_OF_MINE" in result.stderr
    assert keys == []
    result = invoke(*replay, own, "reward.components.tone.args.api_key_env=null")
    assert not is_refused(result), result.output
    assert set(keys) <= {"None"}


# --- text of a run on the terminal ------------------------------------------------------------------------------------


def test_hidden_characters_of_a_run_do_not_reach_the_terminal(world: World) -> None:
    world.configure({"training.reward_function": "a\u202e\u2028\x1b]0;mine\x07.py:reward"})
    result = invoke("rewards", "replay", "run")
    assert is_refused(result)
    assert not set(result.output) & set("\u202e\u2028\x1b\x07")
    assert r"\u202e" in result.stderr


# --- records of the user's own runs -----------------------------------------------------------------------------------


@pytest.fixture
def own(world: World) -> World:
    """A run that this installation started, with a reward of its own."""
    (world.here / "mine.py").write_text(CODE)
    world.configure({"training.reward_function": "mine.py:reward", "evaluation.correct": "mine.py:reward"})
    record_run(world.run)
    return world


def test_a_run_of_ones_own_needs_no_trust(own: World) -> None:
    assert invoke("rewards", "replay", "run").exit_code == 1
    assert own.canary.exists()


def test_a_run_is_recorded_once_by_its_real_path(own: World) -> None:
    records = Path(os.environ["AGENT_TUNIX_HOME"]) / "own_runs.jsonl"
    (own.elsewhere / "link").symlink_to(own.run)
    record_run(own.elsewhere / "link")
    assert [json.loads(line) for line in records.read_text().splitlines()] == [{"run": os.path.realpath(own.run)}]
    assert is_own_run(own.elsewhere / "link")


@pytest.mark.parametrize("place", [shutil.copytree, shutil.move])
def test_a_copied_or_moved_run_needs_trust_until_it_resumes(place: Any, own: World) -> None:
    place(own.run, own.here / "other")
    assert is_refused(invoke("rewards", "replay", "other"))
    assert not own.canary.exists()
    record_run(own.here / "other")
    assert is_own_run(own.here / "other")
