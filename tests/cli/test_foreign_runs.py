"""Runs that somebody else made: what they name is not run, asked, resolved or read, until the user says so."""

import contextlib
import copy
import functools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.raising import raises
from tests.rewards.conventions.test_entry_points import install
from tests.tracking.report.support import default_config, write_run

from agent_tunix.cli import main
from agent_tunix.cli.working_directory import load_env_file
from agent_tunix.config.compose import from_yaml, to_yaml, with_overrides, with_values
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.environments import resolve_environment
from agent_tunix.errors import ConfigError, RewardError, RunDirectoryError, UnknownEnvironmentError, UntrustedRunError
from agent_tunix.evaluation.request import read_request
from agent_tunix.rewards.code_parts import digest_code, find_code_parts
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.trust import check_directory, parts_of, settle_trust, sign_run, used_parts
from agent_tunix.runs.trust.key import mac
from agent_tunix.runs.uploaded_rewards import make_fetch
from agent_tunix.tracking.outcome import RunStatus, read_outcome
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.training.model_card import write_card

pytestmark = pytest.mark.slow

SECRET = "sk-of-the-user"
EVIL = """\
import os, pathlib
pathlib.Path(os.environ["CANARY"]).write_text(os.environ["SECRET_OF_MINE"])
def reward(response, **columns):
    return 1.0
"""


class World:
    """A stranger's run, `here/run`; the user stands in `here`, and whatever runs the stranger's code leaves a file."""

    def __init__(self, directory: Path, written: Path) -> None:
        self.here, self.run = directory / "here", directory / "here" / "run"
        self.elsewhere = directory / "elsewhere"
        self.canary = directory / "canary"
        shutil.copytree(written, self.run)
        self.elsewhere.mkdir()
        (self.elsewhere / "evil.py").write_text(EVIL)

    def configure(self, changes: dict[str, Any]) -> None:
        """Let the run's configuration say something else."""
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

    def sign(self) -> None:
        """Make the run the user's own."""
        sign_run(self.run, self.config, Path.cwd())


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
    made = World(tmp_path, written)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SECRET_OF_MINE", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("CANARY", str(made.canary))
    monkeypatch.chdir(made.here)
    return made


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(ran: Result) -> bool:
    assert SECRET not in ran.output
    return ran.exit_code == 2 and ran.stderr.startswith("UntrustedRunError: ")


# --- what a configuration names ---------------------------------------------------------------------------------------


# FILE stands for a file of the stranger, outside the run.
ATTACKS: dict[str, dict[str, Any]] = {
    "a file": {"training.reward_function": "FILE:reward"},
    "a file by a relative path": {"training.reward_function": "../elsewhere/evil.py:reward"},
    "a file of the run": {"training.reward_function": "run/evil.py:reward"},
    "a module of the working directory": {"training.reward_function": "evil_here.reward"},
    "a module of the library": {"training.reward_function": "os.system"},
    "a module of this package": {"training.reward_function": "agent_tunix.rewards.loading.load_file"},
    "rewards.modules, a file": {"rewards.modules": ["FILE"]},
    "rewards.modules, a module": {"rewards.modules": ["evil_here"]},
    "custom_rewards.py": {"training.reward_function": "mystery_custom"},
    "a change of what custom_rewards.py has": {
        "training.reward_function": "mystery_custom",
        "reward.components": {"mystery_custom": {"weight": 2.0}},
    },
    "a change of a file of conf/reward": {
        "training.reward_function": "mystery_composite",
        "reward.components": {"a": {"weight": 2.0}},
    },
    "arguments of a named judge": {
        "training.reward_function": {"tone": {"function": "judge", "args": {"model": "m", "rubric": "r"}}},
        "reward.components": {"tone": {"args": {"model": "m", "rubric": "r", "base_url": "http://127.0.0.1:9"}}},
    },
    "a file of conf/reward": {"training.reward_function": "mystery_composite"},
    "an entry point": {"training.reward_function": "mystery_installed"},
    "a component": {"reward.components": {"math": {"function": "FILE:reward"}}},
    "a component of weight 0": {"reward.components": {"a": "math", "b": {"function": "FILE", "weight": 0.0}}},
    "a list": {"training.reward_function": ["math", "FILE:reward"]},
    "a mapping": {"training.reward_function": {"a": {"function": "FILE:reward", "when": {"x": 1}}}},
    "a judge": {
        "reward.components": {
            "tone": {
                "function": "judge",
                "args": {"model": "m", "rubric": "r", "base_url": "http://127.0.0.1:9", "api_key_env": "SECRET"},
            }
        }
    },
    "a judge at the usual endpoint": {
        "reward.components": {"tone": {"function": "judge", "args": {"model": "m", "rubric": "r"}}}
    },
    "a judge whose endpoint is null": {
        "reward.components": {
            "tone": {
                "function": "judge",
                "args": {"model": "m", "rubric": "r", "base_url": None, "api_key_env": None},
            }
        }
    },
    "a judge's cache": {
        "reward.components": {
            "tone": {"function": "pairwise_judge", "args": {"model": "m", "cache": "/etc/cron.d/evil"}}
        }
    },
    "a judge by rewards.args": {
        "training.reward_function": "judge",
        "rewards.args": {"judge": {"model": "m", "rubric": "r", "base_url": "http://127.0.0.1:9"}},
    },
    "a reward model's Python": {
        "reward.components": {"rm": {"function": "reward_model", "args": {"path": "x/y", "python": "FILE"}}}
    },
}


# Of the others, what all commands ask is asked directly.
TOLD_BY_COMMANDS = ("a file", "rewards.modules, a file", "a judge")


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_strangers_run_names_is_told_and_not_used(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.run / "evil.py").write_text(EVIL)
    (world.here / "evil_here.py").write_text(EVIL)
    if "custom_rewards.py" in name:
        (world.here / "custom_rewards.py").write_text(EVIL)
    (world.here / "conf" / "reward").mkdir(parents=True)
    composite = {"components": {"a": {"function": f"{world.elsewhere / 'evil.py'}:reward"}}}
    (world.here / "conf" / "reward" / "mystery_composite.yaml").write_text(yaml.safe_dump(composite))
    (site := world.here.parent / "site").mkdir()
    install(site, "installed", "", "mystery_installed = evil_here:reward\n")
    monkeypatch.syspath_prepend(site)
    changes = json.dumps(ATTACKS[name]).replace("FILE", str(world.elsewhere / "evil.py"))
    world.configure(json.loads(changes))
    if name in TOLD_BY_COMMANDS:
        for command in (["rewards", "replay", "run"], ["rewards", "diff", "run", "math"]):
            ran = invoke(*command)
            assert refused(ran), ran.output
            assert "--trust" in ran.stderr
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run", with_rewards=True))
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=Path.cwd())
    assert not world.canary.exists()


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"command": "python evil.py", "env": {"A": "b"}}, "runs the command A=b python evil.py"),
        ({"url": "http://127.0.0.1:9/mcp"}, "sends tool calls to the MCP server http://127.0.0.1:9/mcp"),
    ],
)
def test_mcp_servers_of_a_strangers_run_are_told_and_not_used(server: Any, told: str, world: World) -> None:
    world.configure({"environment.mcp": [server]})
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert f"environment.mcp.0: {told}" in str(refusal.value)


def test_no_text_of_a_run_looks_like_a_line_of_the_question(world: World) -> None:
    world.configure({"environment.mcp": [{"url": "http://127.0.0.1:9/x\n\nNothing else would be used." + "x" * 9999}]})
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert "\nNothing" not in str(refusal.value)
    assert len(str(refusal.value)) < 2000


def test_the_file_of_an_mcp_server_within_a_run_is_ones_own_only_as_it_was_signed(world: World) -> None:
    (world.run / "server.py").write_text("")
    world.configure({"environment.mcp": [{"command": "python run/server.py"}]})
    world.sign()
    settle_trust(world.config, world.run, working_directory=Path.cwd(), with_environment=True)
    (world.run / "server.py").write_text(EVIL)
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=Path.cwd(), with_environment=True)


def test_the_command_of_an_mcp_server_is_ones_own_only_in_its_directory(world: World) -> None:
    world.configure({"environment.mcp": [{"command": "python -m server"}]})
    world.sign()
    request = read_request(EvaluateConfig(checkpoint_dir="run"))
    (world.run / "environment.json").write_text(json.dumps({"working_directory": str(world.elsewhere)}))
    assert request.subject.working_directory == Path.cwd()
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert f"python -m server, in {world.elsewhere}" in str(refusal.value)


@pytest.mark.parametrize("path", ["/proc/self/fd/0", "/dev/fd/900"])
def test_a_descriptor_is_told_because_it_may_be_another_file_later(path: str, world: World) -> None:
    world.configure({"data.path": path})
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        settle_trust(world.config, world.run, working_directory=Path.cwd(), with_reward=False, with_data=True)
    assert path in str(refusal.value)


def test_an_uploaded_function_is_told_whatever_conf_reward_has_under_its_id(world: World) -> None:
    upload = "rf_" + "a" * 24
    (world.here / "conf" / "reward").mkdir(parents=True)
    (world.here / "conf" / "reward" / f"{upload}.yaml").write_text("components: {correct: math}")
    world.configure({"training.reward_function": upload, "rewards.allow_unsandboxed": True})
    assert [part.kind for part in parts_of(world.config, world.here)] == ["uploaded"]


CORRECT: dict[str, dict[str, Any]] = {
    "a file": {"evaluation.correct": "run/evil.py:reward"},
    "a module": {"evaluation.correct": "evil_here.reward"},
    "custom_rewards.py": {"evaluation.correct": "mystery_custom"},
    "a module that registers it": {"evaluation.correct": "mystery", "rewards.modules": ["evil_here"]},
    "the run's own reward": {"evaluation.correct": "reward", "training.reward_function": "run/evil.py:reward"},
    "a judge": {"evaluation.correct": "judge"},
}


@pytest.mark.parametrize("name", CORRECT)
def test_what_measures_a_strangers_run_is_told_and_not_used(name: str, world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    (world.here / "evil_here.py").write_text(EVIL)
    if name == "custom_rewards.py":
        (world.here / "custom_rewards.py").write_text(EVIL)
    world.configure(CORRECT[name])
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert not world.canary.exists()
    assert invoke("rewards", "replay", "run").exit_code in (1, 2)  # which needs no evaluation
    assert not world.canary.exists()


def test_a_measure_of_ones_own_needs_no_trust_in_the_run(world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    (world.here / "mine.py").write_text("def right(response):\n    return 1.0\n")
    world.configure({"evaluation.correct": "run/evil.py:reward", "rewards.modules": ["run/evil.py"]})
    request = read_request(EvaluateConfig(checkpoint_dir="run", correct="mine.py:right"))
    assert request.correct is not None
    assert not world.canary.exists()


def test_a_strangers_run_does_not_say_where_a_name_of_ones_own_is_looked_up(world: World) -> None:
    (world.elsewhere / "custom_rewards.py").write_text(EVIL)
    (world.run / "environment.json").write_text(json.dumps({"working_directory": str(world.elsewhere)}))
    world.configure({})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run", correct="mine"))
    assert not world.canary.exists()


def test_a_run_of_ones_own_is_measured_by_what_it_names(world: World) -> None:
    (world.here / "mine.py").write_text("def right(response):\n    return 1.0\n")
    world.configure({"evaluation.correct": "mine.py:right"})
    world.sign()
    assert read_request(EvaluateConfig(checkpoint_dir="run")).correct is not None
    (world.run / "inner.py").write_text("def right(response):\n    return 1.0\n")
    world.configure({"evaluation.correct": "run/inner.py:right"})
    world.sign()
    assert read_request(EvaluateConfig(checkpoint_dir="run")).correct is not None
    (world.run / "inner.py").write_text(EVIL)
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert not world.canary.exists()


def test_built_in_rewards_of_a_strangers_run_go_on(world: World) -> None:
    world.configure({"reward.components": {"correct": "math", "tags": {"function": "format", "weight": 0.5}}})
    assert invoke("rewards", "replay", "run").exit_code == 1  # its stored totals are another reward's
    assert invoke("rewards", "diff", "run", "math").exit_code == 1


def test_what_needs_no_code_needs_no_trust(world: World) -> None:
    world.configure({"training.reward_function": f"{world.elsewhere / 'evil.py'}:reward"})
    assert invoke("report", "run").exit_code == 0
    assert invoke("compare", "run").exit_code == 0
    assert invoke("rewards", "replay", "run", "--reward", "math").exit_code == 1
    assert not world.canary.exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"grpo.advantage_scaling": "run/evil.py:reward"},
        {"grpo.advantage_scaling": "mystery", "grpo.modules": ["run/evil.py"]},
    ],
)
def test_an_advantage_estimator_of_a_strangers_run_is_told_and_not_used(keys: dict[str, Any], world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    world.configure({"training.reward_function": "math", **keys})
    assert refused(invoke("rewards", "replay", "run", "--reward", "math"))
    assert refused(invoke("rewards", "diff", "math", "format", "--run", "run"))
    assert not world.canary.exists()
    replayed = invoke("rewards", "replay", "run", "--reward", "math", "grpo.advantage_scaling=none")
    assert replayed.exit_code == 1  # the user's own choice of another estimator needs no trust
    assert not world.canary.exists()
    invoke("rewards", "replay", "run", "--reward", "math", "--trust")
    assert world.canary.exists()


def test_the_loss_of_a_strangers_run_is_not_imported(world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    world.configure({"grpo.loss": "run/evil.py:reward", "grpo.modules": ["run/evil.py"]})
    assert invoke("rewards", "replay", "run", "--reward", "math").exit_code == 1
    assert not world.canary.exists()


def test_a_trusted_run_runs_what_it_names_until_it_changes(world: World) -> None:
    evil = world.elsewhere / "evil.py"
    world.configure({"training.reward_function": f"{evil}:reward"})
    assert invoke("rewards", "diff", "run", "math", "--trust").exit_code == 1
    assert world.canary.read_text() == SECRET
    assert invoke("rewards", "diff", "run", "math").exit_code == 1  # remembered
    evil.write_text(f"{EVIL}\n# another\n")
    assert refused(invoke("rewards", "diff", "run", "math"))
    evil.write_text(EVIL)
    assert invoke("rewards", "diff", "run", "math").exit_code == 1
    world.configure({"training.reward_function": f"{evil}:reward", "seed": 5})
    assert refused(invoke("rewards", "diff", "run", "math"))


@pytest.mark.parametrize("inner", ["native.so", "native/__init__.abi3.so", "native.pyc"])
def test_a_trusted_library_that_changes_is_asked_about_again(inner: str, world: World) -> None:
    library = world.here / inner
    library.parent.mkdir(exist_ok=True)
    library.write_bytes(b"one")
    world.configure({"training.reward_function": "native.reward"})
    settle_trust(world.config, world.run, working_directory=world.here, trust=True)
    settle_trust(world.config, world.run, working_directory=world.here)
    library.write_bytes(b"two")
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=world.here)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_an_upload_that_is_a_pipe_or_device_is_not_waited_for(kind: str, world: World) -> None:
    (world.run / "rewards").mkdir()
    place = world.run / "rewards" / "rf_0123.py"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    world.configure({"training.reward_function": "mystery", "rewards.allow_unsandboxed": True})
    own = with_overrides(Config(), ["rewards.allow_unsandboxed=true"])
    settled = settle_trust(world.config, world.run, working_directory=world.here, trust=True, own=own)
    assert settled.training.reward_function == "mystery"
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=world.here, own=own)


def test_code_without_end_is_an_error(world: World) -> None:
    with (world.run / "evil.py").open("wb") as file:
        file.truncate(2**40)
    with raises(RunDirectoryError, "code_too_large"):
        digest_code(world.run / "evil.py")
    world.configure({"training.reward_function": "run/evil.py:reward"})
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=world.here)


def test_trust_is_of_a_directory_and_not_of_a_name(world: World) -> None:
    world.configure({"training.reward_function": "run/evil.py:reward"})
    (world.run / "evil.py").write_text(EVIL)
    link = world.here / "link"
    link.symlink_to(world.run)
    assert invoke("rewards", "diff", "link", "math", "--trust").exit_code == 1
    other = world.here / "other"
    shutil.copytree(world.run, other)
    link.unlink()
    link.symlink_to(other)
    assert refused(invoke("rewards", "diff", "link", "math"))


# --- judges -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the keys that it is sent."""
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


def test_a_strangers_judge_is_sent_no_key(world: World, endpoint: tuple[str, list[str]]) -> None:
    url, keys = endpoint
    args = {"model": "m", "rubric": "r", "base_url": url, "api_key_env": "SECRET_OF_MINE"}
    world.configure({"reward.components": {"tone": {"function": "judge", "args": args}}})
    ran = invoke("rewards", "replay", "run", "--steps", "1:1")
    assert refused(ran)
    assert f"base_url={url}" in ran.stderr
    assert "api_key_env=SECRET_OF_MINE" in ran.stderr
    assert keys == []


def test_a_judge_at_the_users_endpoint_does_not_take_the_strangers_key(
    world: World, endpoint: tuple[str, list[str]]
) -> None:
    url, keys = endpoint
    args = {"model": "m", "rubric": "r", "base_url": "http://stranger", "api_key_env": "SECRET_OF_MINE"}
    world.configure({"reward.components": {"tone": {"function": "judge", "args": args}}})
    own = f"reward.components.tone.args.base_url={url}"
    assert refused(invoke("rewards", "replay", "run", "--steps", "1:1", own))
    ran = invoke("rewards", "replay", "run", "--steps", "1:1", own, "reward.components.tone.args.api_key_env=null")
    assert not refused(ran), ran.output
    assert set(keys) <= {"None"}


# --- YAML and interpolation -------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x]\n" + "".join(f"k{i}: &k{i} [*{'a' if i == 0 else f'k{i - 1}'}]\n" for i in range(20))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("seed: !!python/object/apply:os.system ['touch CANARY']\n", "damaged_run_config"),
        (LAUGHS, "damaged_run_config"),
        ("prompt: {system: '${oc.env:SECRET_OF_MINE}'}\n", "stored_interpolation"),
        ("hydra: {searchpath: [file:///tmp]}\n", "unknown_key"),
        ("seed: !!python/name:os.system\n", "damaged_run_config"),
        ("seed: !!python/object/new:pathlib.Path ['x']\n", "damaged_run_config"),
        ("seed: !!python/object/apply:pathlib.PosixPath ['x']\n", "damaged_run_config"),
        ("rewards: {args: " + "[" * 5000 + "]" * 5000 + "}\n", "damaged_run_config"),
        ("a: " + "1:" * 200_000 + "1\n", "damaged_run_config"),
        ("a: " + "x " * 5_000_000 + "\n", "damaged_run_config"),
        ("a: [" + "1," * 300_000 + "1]\n", "damaged_run_config"),
        ("seed: 1\nseed: 2\n", "damaged_run_config"),
        ("prompt: {system: '\\\\${oc.env:SECRET_OF_MINE}'}\n", "stored_interpolation"),
        ("rewards: {args: {x: {y: ['${oc.env:SECRET_OF_MINE}']}}}\n", "stored_interpolation"),
        ("project_name: ${seed}\n", "stored_interpolation"),
        ("data: {path: '${hydra:runtime.cwd}'}\n", "stored_interpolation"),
        ("model: {_target_: os.system}\n", "unknown_key"),
        ("defaults: [evil]\n", "unknown_key"),
        ("model: [1]\n", "wrong_type"),
        ("seed: [1]\n", "wrong_type"),
        ("seed: .inf\n", "wrong_type"),
        ("rewards: {modules: evil}\n", "wrong_type"),
        ("reward: {components: [evil]}\n", "wrong_type"),
        ("project_name: ???\n", "missing_value"),
        ("seed: 2026-01-01 00:00:00\n", "wrong_type"),
    ],
)
def test_a_configuration_is_data(text: str, code: str, world: World) -> None:
    (world.run / "config.yaml").write_text(text)
    with raises(ConfigError, code):
        from_yaml(world.run / "config.yaml")
    for command in (["rewards", "replay", "run"], ["report", "run"], ["rewards", "diff", "run", "math"]):
        ran = invoke(*command)
        assert ran.exit_code == 2
        assert SECRET not in ran.output
    assert invoke("compare", "run").exit_code == 0  # one damaged run is a row like others
    assert not world.canary.exists()


def test_target_keys_are_values_like_others(world: World) -> None:
    world.configure({"rewards.args": {"math": {"_target_": "os.system", "command": f"touch {world.canary}"}}})
    assert invoke("rewards", "replay", "run").exit_code == 2
    assert not world.canary.exists()


def test_text_that_looks_like_an_interpolation_stays_text(world: World) -> None:
    text = "${oc.env:SECRET_OF_MINE} and \\${x}"
    config = Config()
    config.prompt.system = text
    (world.run / "config.yaml").write_text(to_yaml(config))
    assert world.config.prompt.system == text
    assert with_values(world.config, {"data": {"name": "${oc.env:SECRET_OF_MINE}"}}).prompt.system == text
    assert with_overrides(world.config, ["seed=3"]).prompt.system == text


# --- signatures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(world: World) -> World:
    """A run of the user's own, whose reward lies beside it."""
    (world.here / "mine.py").write_text("def reward(response):\n    return 1.0\n")
    world.configure({"training.reward_function": "mine.py:reward"})
    world.sign()
    return world


def test_a_run_of_ones_own_is_not_asked_about(own: World) -> None:
    assert invoke("rewards", "replay", "run").exit_code == 1
    (own.here / "mine.py").write_text("def reward(response):\n    return 2.0\n")
    assert invoke("rewards", "replay", "run").exit_code == 1


def test_a_key_is_made_once_and_is_the_users_alone(own: World) -> None:
    key = Path(os.environ["AGENT_TUNIX_HOME"]) / "run_key"
    first = key.read_bytes()
    assert len(first) == 32
    assert key.stat().st_mode & 0o777 == 0o600
    own.sign()
    assert key.read_bytes() == first


def test_a_copy_with_the_same_code_is_ones_own_and_one_with_other_code_is_not(own: World) -> None:
    copy = own.here.parent / "copy"
    shutil.copytree(own.here, copy)
    os.chdir(copy)
    assert invoke("rewards", "replay", "run").exit_code == 1
    (copy / "mine.py").write_text(EVIL)
    assert refused(invoke("rewards", "replay", "run"))
    assert not own.canary.exists()


def _change_config(world: World) -> None:
    with (world.run / "config.yaml").open("a") as file:
        file.write("\n# changed\n")


def _sign_with_another_key(world: World) -> None:
    path = world.run / "signature.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "hmac_sha256": mac(b"k" * 32, stored["signed"])}))


def _name_other_code(world: World) -> None:
    path = world.run / "signature.json"
    stored = json.loads(path.read_text())
    stored["signed"]["parts"][0][3] = None
    path.write_text(json.dumps(stored))


def _take_anothers_signature(world: World) -> None:
    other = world.here / "other"
    shutil.copytree(world.run, other)
    config = world.config
    config.seed = 7
    (other / "config.yaml").write_text(to_yaml(config))
    sign_run(other, config, Path.cwd())
    shutil.copy(other / "signature.json", world.run)


def _link_the_signature(world: World) -> None:
    (world.run / "signature.json").rename(world.here / "signature.json")
    (world.run / "signature.json").symlink_to(world.here / "signature.json")


def _write_nonsense(text: str) -> Any:
    return lambda world: (world.run / "signature.json").write_text(text)


def _open_the_key(world: World) -> None:
    (Path(os.environ["AGENT_TUNIX_HOME"]) / "run_key").chmod(0o644)


def _link_the_key(world: World) -> None:
    key = Path(os.environ["AGENT_TUNIX_HOME"]) / "run_key"
    key.rename(world.elsewhere / "key")
    key.symlink_to(world.elsewhere / "key")


def _move_the_home(world: World) -> None:
    Path(os.environ["AGENT_TUNIX_HOME"]).rename(world.elsewhere / "home")


def _stand_elsewhere(world: World) -> None:
    (world.elsewhere / "mine.py").write_text(EVIL)
    os.chdir(world.elsewhere)


@pytest.mark.parametrize(
    "forge",
    [
        _change_config,
        _sign_with_another_key,
        _write_nonsense("[" * 100_000),
        _stand_elsewhere,
        _name_other_code,
        _take_anothers_signature,
        _link_the_signature,
        _write_nonsense('{"signed": 5, "hmac_sha256": 5}'),
        _write_nonsense('{"signed": {"version": 1}, "hmac_sha256": "00"}'),
        _write_nonsense("\x00"),
        _open_the_key,
        _link_the_key,
        _move_the_home,
    ],
)
def test_a_signature_that_does_not_hold_makes_no_run_ones_own(forge: Any, own: World) -> None:
    forge(own)
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(own.config, own.run, working_directory=Path.cwd())
    assert not own.canary.exists()


@pytest.mark.parametrize("inner", ["reward", "neighbour", "bytecode"])
def test_code_within_a_run_is_ones_own_only_as_it_was_signed(inner: str, world: World) -> None:
    (world.run / "own.py").write_text("def reward(response):\n    return 1.0\n")
    world.configure({"training.reward_function": f"{world.run / 'own.py'}:reward"})
    world.sign()
    assert invoke("rewards", "replay", "run").exit_code == 1
    cached = world.run / "__pycache__" / "own.cpython-311.pyc"
    if inner == "bytecode":
        cached.parent.mkdir(exist_ok=True)
    target = {"reward": world.run / "own.py", "neighbour": world.run / "json.py", "bytecode": cached}[inner]
    target.write_text(EVIL)
    assert refused(invoke("rewards", "replay", "run"))
    assert not world.canary.exists()


# --- other files of a run ---------------------------------------------------------------------------------------------


def test_a_strangers_env_file_gives_no_secret_another_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_KEY", "")  # restored after the test
    monkeypatch.delenv("DEMO_KEY")
    Path(".env").write_text("DEMO_KEY=${OPENAI_API_KEY}\n")
    load_env_file()
    assert os.environ["DEMO_KEY"] == "${OPENAI_API_KEY}"


@pytest.mark.parametrize(
    "name",
    [
        *("AGENT_TUNIX_HOME", "PYTHONPATH", "HF_ENDPOINT", "WANDB_BASE_URL", "https_proxy"),
        *("LD_PRELOAD", "PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH"),
        *("NCCL_NET_PLUGIN", "OPENSSL_CONF", "RAY_ADDRESS", "JAX_COORDINATOR_ADDRESS", "XLA_FLAGS"),
        *("KAGGLE_API_ENDPOINT", "MLFLOW_TRACKING_URI", "ALL_PROXY"),
        *("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "GCE_METADATA_HOST", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("AGENT_TUNIX_URL", "CUDA_INJECTION64_PATH", "BASH_ENV", "SSLKEYLOGFILE", "OPENAI_API_BASE"),
    ],
)
def test_a_strangers_env_file_decides_neither_whose_code_runs_nor_where_keys_go(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    Path(".env").write_text(f"{name}={world.elsewhere}\n")
    with raises(ConfigError, "refused_in_env"):
        load_env_file()
    assert name not in os.environ


def test_modules_of_the_working_directory_are_not_those_of_workers(world: World) -> None:
    """A stranger's `numpy.py` beside a run of hers, which is read there."""
    Path("numpy.py").write_text(EVIL)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "agent_tunix",
            "rewards",
            "try",
            "math",
            "--response",
            "\\boxed{\\int_0^1 x dx}",
            "--answer",
            "\\frac{1}{2}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not world.canary.exists()


def test_an_env_file_may_hold_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "HF_TOKEN",
        "KAGGLE_USERNAME",
        "KAGGLE_KEY",
        "AGENT_TUNIX_KEY",
        "WANDB_API_KEY",
        "JUDGE_KEY",
    )
    for name in names:
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    Path(".env").write_text("".join(f"{name}=mine\n" for name in names))
    load_env_file()
    assert [os.environ[name] for name in names] == ["mine"] * len(names)


@pytest.mark.parametrize("environment", [5, {"reward_fingerprint": {"components": {"a": 5}}}])
def test_an_environment_of_wrong_types_is_an_error_of_ours(environment: Any, world: World) -> None:
    (world.run / "environment.json").write_text(json.dumps(environment))
    for command in (["rewards", "replay", "run"], ["rewards", "diagnose", "run"], ["report", "run"]):
        ran = invoke(*command)
        assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception


def test_an_environment_of_wrong_types_does_not_keep_a_run_from_being_evaluated(world: World) -> None:
    environments: list[Any] = [
        *([], 5, {"reward_fingerprint": 5}, {"reward_fingerprint": {"components": [1]}}),
        *({"reward_fingerprint": {"hash": 1, "versions": 5}}, {"context": 5, "working_directory": 5}),
    ]
    for environment in environments:
        (world.run / "environment.json").write_text(json.dumps(environment))
        read_request(EvaluateConfig(checkpoint_dir="run"))
        with contextlib.suppress(RunDirectoryError):
            _ = StoredRun(world.run).fingerprint


def test_nested_json_is_an_error_of_ours(world: World) -> None:
    (world.run / "environment.json").write_text("[" * 100_000)
    with raises(RunDirectoryError, "unreadable_environment"):
        _ = StoredRun(world.run).environment
    (world.run / "status.json").write_text("[" * 100_000)
    assert read_outcome(world.run).status is RunStatus.UNREADABLE


@pytest.mark.parametrize("entry", [5, {"id": "../../elsewhere/evil"}, {"id": "rf_" + "a" * 24, "name": 5}])
def test_uploads_that_a_run_keeps_are_found_by_their_id_alone(
    entry: Any, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged list is left out, and the store is asked."""
    (world.run / "environment.json").write_text(json.dumps({"uploaded_rewards": [entry]}))
    make_fetch(world.run)
    assert "is damaged" in caplog.text
    assert "elsewhere/evil.py" not in caplog.text  # no such file was looked for


def test_uploads_of_a_stranger_are_isolated_whatever_the_run_says(world: World) -> None:
    world.configure({"training.reward_function": "rf_" + "a" * 24, "rewards.allow_unsandboxed": True})
    assert not settle_trust(world.config, world.run, working_directory=Path.cwd()).rewards.allow_unsandboxed
    allowed = with_overrides(Config(), ["rewards.allow_unsandboxed=true"])
    with raises(UntrustedRunError, "untrusted_run"):
        settle_trust(world.config, world.run, working_directory=Path.cwd(), own=allowed)


def test_limits_on_rewards_are_the_users(world: World) -> None:
    world.configure({"rewards.num_workers": 100_000, "rewards.timeout_s": 1e9, "rewards.execution": "ray"})
    expected = with_overrides(Config(), ["rewards.execution=process"]).rewards
    assert settle_trust(world.config, world.run, working_directory=Path.cwd()).rewards == expected
    inline = with_overrides(Config(), ["rewards.execution=inline"])
    found = settle_trust(world.config, world.run, working_directory=Path.cwd(), own=inline)
    assert found.rewards == inline.rewards


def test_limits_on_programs_are_at_most_the_defaults(world: World) -> None:
    limits = {"timeout_s": 600, "memory_mb": 65_536}
    component = {"function": "code_tests", "args": dict(limits)}
    world.configure({"rewards.args": {"code_tests": limits}, "reward.components": {"code": component}})
    found = settle_trust(world.config, world.run, working_directory=Path.cwd())
    assert found.rewards.args == {"code_tests": {"timeout_s": 5.0, "memory_mb": 256}}
    assert found.reward.components["code"]["args"] == {"timeout_s": 5.0, "memory_mb": 256}
    own = with_overrides(Config(), ["rewards.args={code_tests: {timeout_s: 60}}"])
    found = settle_trust(world.config, world.run, working_directory=Path.cwd(), own=own)
    assert found.rewards.args == {"code_tests": {"timeout_s": 60, "memory_mb": 256}}
    file = world.here / "conf" / "reward" / "tested.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"components": {"code": component}}))
    world.configure({"training.reward_function": "tested"})
    found = settle_trust(world.config, world.run, working_directory=world.here)
    assert found.training.reward_function["code"]["args"] == {"timeout_s": 5.0, "memory_mb": 256}


def test_compiled_programs_are_the_users(world: World) -> None:
    world.configure({"distributed.compilation_cache": str(world.elsewhere)})
    assert find_run(world.run).config.distributed.compilation_cache == "auto"


def test_files_that_others_may_not_read_are_not_evaluated_for_a_stranger(world: World) -> None:
    secret = world.elsewhere / "credentials.csv"
    secret.write_text("question,answer\nwhat,1\n")
    secret.chmod(0o600)
    world.configure({"data.path": str(secret)})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    (world.run / "inner.csv").symlink_to(secret)
    world.configure({"data.path": str(world.run / "inner.csv")})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    read_request(EvaluateConfig(checkpoint_dir="run", trust=True))


def _secret(world: World) -> Path:
    secret = world.elsewhere / "credentials.csv"
    secret.write_text("question,answer\nwhat,1\n")
    secret.chmod(0o600)
    return secret


def _link_in_a_directory(world: World) -> str:
    (world.run / "data").mkdir()
    (world.run / "data" / "train.csv").symlink_to(_secret(world))
    return "data"


def _link_further_down(world: World) -> str:
    (world.run / "data" / "inner").mkdir(parents=True)
    (world.run / "data" / "inner" / "train.csv").symlink_to(_secret(world))
    return "data"


def _link_to_a_directory(world: World) -> str:
    _secret(world)
    (world.run / "data").symlink_to(world.elsewhere)
    return "data"


def _link_beside_one_to_nothing(world: World) -> str:
    (world.run / "data").mkdir()
    (world.run / "data" / "a.csv").symlink_to("nothing")
    (world.run / "data" / "train.csv").symlink_to(_secret(world))
    return "data"


def _link_named_as_a_pattern(world: World) -> str:
    (world.run / "a[b].csv").symlink_to(_secret(world))
    return "a[b].csv"


def _pattern_of_any_depth(world: World) -> str:
    (world.elsewhere / "a" / "b").mkdir(parents=True)
    _secret(world).rename(world.elsewhere / "a" / "b" / "secret.csv")
    return "../../elsewhere/**/secret.csv"


@pytest.mark.parametrize(
    "hide",
    [
        _link_in_a_directory,
        _pattern_of_any_depth,
        _link_further_down,
        _link_to_a_directory,
        _link_beside_one_to_nothing,
        _link_named_as_a_pattern,
    ],
)
def test_private_files_are_found_wherever_they_hide(hide: Callable[[World], str], world: World) -> None:
    world.configure({"data.path": str(world.run / hide(world))})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))


def test_the_parameters_of_a_task_may_name_files(world: World) -> None:
    """reasoning_gym reads the file, and an evaluation writes its words into the run's directory."""
    task = {"spell_backward": {"data_file": str(_secret(world)), "size": 4}}
    world.configure({"data.source": "reasoning_gym", "data.tasks": task})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    world.configure({"data.tasks": {"spell_backward": {"size": 4}}})
    read_request(EvaluateConfig(checkpoint_dir="run"))


@pytest.mark.parametrize("end", ["/", "/.", "*/"])
def test_a_private_file_is_found_whatever_follows_its_name(end: str, world: World) -> None:
    world.configure({"training.test_data_dir": f"{_secret(world)}{end}"})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))


def test_the_settings_beside_a_mixture_are_told_because_they_read_the_test_rows(world: World) -> None:
    world.configure(
        {
            "data.mixture": {"sums": {"source": "synthetic"}},
            "data.source": "huggingface",
            "training.test_data_dir": "victim/private",
        }
    )
    with raises(UntrustedRunError, "untrusted_run") as refusal:
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert "victim/private" in str(refusal.value)


def test_what_is_told_is_the_file_that_runs(world: World) -> None:
    (world.here / "e").symlink_to(world.elsewhere / "evil.py")
    (world.here / "e:good.py").touch()
    with raises(UnknownEnvironmentError, "unknown_attribute"):
        resolve_environment("e:good.py")
    assert not world.canary.exists()
    (world.here / "lib" / "pkg").mkdir(parents=True)
    (world.here / "lib" / "pkg" / "m.py").touch()

    def files(*specs: str) -> list[Path | None]:
        return [part.file for part in find_code_parts(list(specs), working_directory=world.here)]

    assert files("evil.py.reward") == [world.here / "evil.py"]
    assert files("lib/a.py:f", "pkg.m.f") == [world.here / "lib/a.py", None, world.here / "lib/pkg/m.py"]
    with raises(RewardError, "module_with_colon"):
        find_code_parts("math", modules=["good.py:x"], working_directory=world.here)


def test_a_directory_with_more_files_than_are_looked_at_is_asked_about(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_parts, "_MOST_FILES", 3)
    (world.run / "data").mkdir()
    for number in range(5):
        (world.run / "data" / f"{number}.csv").write_text("question,answer\n")
    world.configure({"data.path": str(world.run / "data")})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))


def test_the_run_that_is_compared_with_is_a_strangers_too(world: World) -> None:
    secret = world.elsewhere / "secret.jinja"
    secret.write_text("secret")
    secret.chmod(0o600)
    world.configure({"prompt.chat_template": str(secret)})
    own = world.here / "own"
    write_run(own)
    (own / "config.yaml").write_text(to_yaml(Config()))
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="own", compare_with="run"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("config.yaml", "pipe"), ("metrics.jsonl", "pipe"), ("environment.json", "pipe"), ("status.json", "pipe")),
        *(("signature.json", "pipe"), ("findings.jsonl", "pipe"), ("environment.json", "device")),
    ],
)
def test_pipes_and_devices_are_not_waited_for(name: str, kind: str, world: World) -> None:
    (world.run / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(world.run / name)
    else:
        (world.run / name).symlink_to("/dev/zero")
    for command in (
        ["rewards", "replay", "run"],
        ["rewards", "diagnose", "run"],
        ["report", "run"],
        ["compare", "run"],
    ):
        ran = invoke(*command)
        assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception


def test_rollouts_that_are_a_pipe_are_an_error(world: World) -> None:
    for path in (world.run / "rollouts").iterdir():
        path.unlink()
    os.mkfifo(world.run / "rollouts" / "step_000001-000001.parquet")
    with raises(RunDirectoryError, "inaccessible_rollouts"):
        StoredRun(world.run).rollouts.steps()


def test_a_line_of_metrics_that_nests_without_end_is_an_error(world: World) -> None:
    (world.run / "metrics.jsonl").write_text("[" * 100_000 + "\n" + '{"step": 1}\n')
    with raises(RunDirectoryError, "damaged_metrics"):
        _ = StoredRun(world.run).rows


@pytest.mark.parametrize(
    "changes",
    [
        {"generation.stop_strings": [""]},
        {"generation.eos_tokens": [10**30]},
        {"prompt.date": "today"},
        {"model.path": "a/" * 4000},
    ],
)
def test_values_out_of_range_are_an_error_of_generate(changes: dict[str, Any], world: World) -> None:
    world.configure(changes)
    assert invoke("generate", "run", "--prompt", "x").exit_code == 2


@pytest.mark.parametrize(
    "row",
    [
        '{"step": 1%s}' % ("0" * 400),
        '{"step": 1, "rewards/total/mean": 1%s}' % ("0" * 400),
        '{"step": 1, "rewards/total/mean": "x", "time/step_s": {}}',
        '{"step": 1, "rewards/total/mean": NaN, "time/step_s": Infinity}',
        '{"step": 1, "rewards/total/mean": 1e999, "time/step_s": 1e999}',
        '{"step": 1, "rewards/total/histogram": 1.5, "policy/loss": {"counts": [1], "edges": [0, 1]}}',
    ],
)
def test_metrics_that_are_no_numbers_crash_no_command(row: str, world: World) -> None:
    (world.run / "metrics.jsonl").write_text(f"{row}\n{row}\n")
    for command in (["report"], ["compare"], ["rewards", "diagnose"]):
        ran = invoke(*command, "run")
        assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception


def test_a_dataset_that_is_code_is_not_loaded_for_a_stranger(world: World) -> None:
    world.configure({"data.source": "tfds", "data.path": "evil"})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))


@pytest.mark.parametrize(
    "key",
    ["prompt.chat_template", "model.path", "training.checkpoint_dir", "training.init_checkpoint"],
)
def test_a_private_policy_is_not_exported_for_a_stranger(key: str, world: World, tmp_path: Path) -> None:
    secret = world.elsewhere / "private" / "secret"
    secret.parent.mkdir()
    secret.write_text(SECRET)
    secret.chmod(0o600)
    world.configure({key: str(secret if key == "prompt.chat_template" else secret.parent)})
    assert refused(invoke("export", "run", "--to", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inner", ["", "step_000002"])
def test_a_private_checkpoint_behind_a_link_is_not_exported_for_a_stranger(
    inner: str, world: World, tmp_path: Path
) -> None:
    secret = world.elsewhere / "private" / "secret"
    secret.parent.mkdir()
    secret.write_text(SECRET)
    secret.chmod(0o600)
    world.configure({})
    shutil.rmtree(world.run / "checkpoints", ignore_errors=True)
    place = world.run / "checkpoints" / inner
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(secret.parent) if inner else (world.run / "checkpoints").symlink_to(secret.parent)
    assert refused(invoke("export", "run", "--to", tmp_path / "out"))
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    assert not (tmp_path / "out").exists()


def _make_private_checkpoint(world: World) -> Path:
    directory = world.elsewhere / "private"
    (directory / "step_000002").mkdir(parents=True)
    secret = directory / "step_000002" / "weights"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return directory


def test_a_checkpoint_below_home_is_not_one_in_a_directory_with_that_name(world: World, tmp_path: Path) -> None:
    private = _make_private_checkpoint(world)
    (world.here / "~").mkdir()
    (world.here / "~" / "theirs").symlink_to(private)
    world.configure({"training.checkpoint_dir": "~/theirs"})
    assert find_run("run").checkpoints == Path.home() / "theirs"
    assert invoke("export", "run", "--to", tmp_path / "out").exit_code
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", ["", ":2", ":best"])
def test_a_private_checkpoint_of_an_inner_run_is_not_exported_for_a_stranger(
    step: str, world: World, tmp_path: Path
) -> None:
    private = _make_private_checkpoint(world)
    world.configure({"training.checkpoint_dir": str(private)})
    inner = world.run / "inner"
    inner.mkdir()
    shutil.copy(world.run / "config.yaml", inner)
    world.configure({"training.init_checkpoint": f"{inner}{step}"})
    assert refused(invoke("export", "run", "--to", tmp_path / "out", "--step", "0"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inner", ["step_000002", "", "step_000002/weights"])
def test_a_link_in_a_copy_of_the_users_run_is_asked_about(inner: str, world: World, tmp_path: Path) -> None:
    private = _make_private_checkpoint(world)
    world.configure({})
    shutil.rmtree(world.run / "checkpoints", ignore_errors=True)
    world.sign()
    copy = world.here / "copy"
    shutil.copytree(world.run, copy)
    place = copy / "checkpoints" / inner
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(private / inner)
    assert refused(invoke("export", "copy", "--to", tmp_path / "out"))
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="copy"))
    assert not (tmp_path / "out").exists()


def test_a_copy_of_the_users_run_is_used_without_questions(world: World) -> None:
    world.configure({"model.path": str(_make_private_checkpoint(world))})
    (world.run / "checkpoints" / "step_000002").mkdir(parents=True, exist_ok=True)
    world.sign()
    copy = world.here / "copy"
    shutil.copytree(world.run, copy)
    settle_trust(world.config, copy, working_directory=Path.cwd(), with_reward=False, with_data=True, with_policy=True)


def test_a_private_file_is_not_published_as_a_picture(world: World, tmp_path: Path) -> None:
    (world.run / "plots").mkdir()
    os.mkfifo(world.run / "plots" / "pipe.png")
    (world.run / "plots" / "own.png").write_bytes(b"png")
    stored = StoredRun(world.run)
    (world.elsewhere / "key.png").write_text(SECRET)
    (world.run / "plots" / "key.png").symlink_to(world.elsewhere / "key.png")  # after the check of the run
    out = tmp_path / "out"
    out.mkdir()
    write_card(stored, out, 2, [], adapter=False)
    assert [path.name for path in (out / "plots").iterdir()] == ["own.png"]


@pytest.mark.parametrize("name", ["environment.json", "metrics.jsonl", "rollouts", "rollouts/x.parquet", "plots"])
def test_a_run_whose_files_are_links_is_not_read(name: str, world: World) -> None:
    private = world.elsewhere / "private"
    private.mkdir()
    path = world.run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(private)
    for command in (["report", "run"], ["export", "run", "--to", "out"], ["rewards", "diagnose", "run"]):
        ran = invoke(*command)
        assert (ran.exit_code, name in ran.stderr) == (2, True), ran.output
    assert not (world.here / "out").exists()


@pytest.mark.parametrize("key", ["model.path", "data.path"])
def test_what_a_hub_opens_for_the_user_is_asked_about(key: str, world: World, tmp_path: Path) -> None:
    world.configure({key: "hf://me/private@" + "a" * 40})
    with raises(UntrustedRunError, "untrusted_run"):
        read_request(EvaluateConfig(checkpoint_dir="run"))
    if key == "model.path":
        assert refused(invoke("export", "run", "--to", tmp_path / "out"))


@pytest.mark.parametrize("has_config", [True, False])
@pytest.mark.parametrize("name", ["train.log", ".lock", "rollouts", "rollouts/.step_000001.partial"])
def test_training_does_not_write_through_links_of_a_stranger(name: str, has_config: bool, world: World) -> None:
    if not has_config:
        (world.run / "config.yaml").unlink()
    path = world.run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(world.elsewhere / "victim")
    with raises(RunDirectoryError, "links_in_run"):
        check_directory(world.run, Config())


def test_a_directory_that_is_a_link_is_trained_in_only_if_it_leads_to_a_run_of_ones_own(own: World) -> None:
    link = own.elsewhere / "run"
    link.symlink_to(own.run)
    check_directory(link, Config())
    (own.run / "config.yaml").unlink()
    with raises(RunDirectoryError, "link_in_directory"):
        check_directory(link, Config())


def test_training_does_not_wait_for_pipes_of_a_stranger(world: World) -> None:
    (world.run / "train.log").unlink(missing_ok=True)
    os.mkfifo(world.run / "train.log")
    with raises(RunDirectoryError, "pipes_in_run"):
        check_directory(world.run, Config())


def test_links_are_kept_in_a_run_of_ones_own_but_not_in_its_copy(own: World, tmp_path: Path) -> None:
    (own.run / "train.log").symlink_to(own.elsewhere)
    check_directory(own.run, Config())
    copy = tmp_path / "copy"
    shutil.copytree(own.run, copy, symlinks=True)
    with raises(RunDirectoryError, "links_in_run"):
        check_directory(copy, Config())


def test_a_matplotlibrc_of_the_working_directory_has_no_effect(world: World) -> None:
    (world.here / "matplotlibrc").write_text("figure.facecolor: red\n")
    program = """
import io, matplotlib, matplotlib.image
from agent_tunix.tracking.report.pictures import Chart, Section
from agent_tunix.tracking.report.plots import draw_section
assert matplotlib.rcParams["figure.facecolor"] == "red"
picture = matplotlib.image.imread(io.BytesIO(draw_section(Section("a", "A", "", [Chart("a")]))))
assert picture[0, 0, :3].tolist() == [1, 1, 1], picture[0, 0]
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=world.here, timeout=120)


def test_texts_of_a_run_are_no_markup_in_the_card_of_its_model(world: World, tmp_path: Path) -> None:
    evil = "<img src=x> [a](http://b) `c`\n# d | e \x1b[2J"
    world.configure({"project_name": evil, "prompt.system": evil, "model.path": f"/m/{evil.replace('/', '')}"})
    environment = {"reward": f"```{evil}", "versions": {"jax": evil}}
    (world.run / "environment.json").write_text(json.dumps(environment))
    write_card(StoredRun(world.run), tmp_path, 2, [], adapter=True)
    written = (tmp_path / "README.md").read_text()
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", written.partition("\n---\n")[2].replace("\\`", ""), flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<img|(?<!\\)\[a|^# d", outside, flags=re.MULTILINE)
    assert "\x1b" not in written


def test_a_report_does_not_write_through_a_link(world: World) -> None:
    victim = world.elsewhere / "victim"
    victim.write_text("mine")
    for name in ("report.html", ".report.html.partial", ".reward_analysis.json.partial"):
        (world.run / name).symlink_to(victim)
    assert invoke("report", "run", "--data").exit_code == 0
    assert victim.read_text() == "mine"


def test_pictures_are_not_written_or_removed_through_a_link(world: World) -> None:
    (world.elsewhere / "mine.png").write_text("mine")
    (world.run / "plots").symlink_to(world.elsewhere)
    assert invoke("report", "run").exit_code == 2
    assert sorted(path.name for path in world.elsewhere.iterdir()) == ["evil.py", "mine.png"]


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "checkpoints", "checkpoints/step_000001"])
def test_a_strangers_run_with_links_is_not_gone_on_with(name: str, world: World) -> None:
    path = world.run / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(world.elsewhere)
    with raises(RunDirectoryError, "links_in_run"):
        check_directory(world.run, Config())


def test_values_of_a_parquet_file_are_not_unpickled(world: World) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {world.canary}",))

    import pickle

    field = pa.field("question", pa.binary(), metadata={"ARROW:extension:name": "arrow.py_extension_type"})
    field = field.with_metadata({**field.metadata, "ARROW:extension:metadata": pickle.dumps(Evil())})
    table = pa.table([pa.array([b"x"])], schema=pa.schema([field]))
    (world.run / "rollouts" / "step_000001-000001.parquet").unlink(missing_ok=True)
    pq.write_table(table, world.run / "rollouts" / "step_000001-000001.parquet")
    for command in (["rewards", "replay", "run"], ["report", "run"], ["rewards", "diagnose", "run"]):
        invoke(*command)
    assert not world.canary.exists()


def test_hidden_characters_of_a_run_do_not_reach_the_terminal(world: World) -> None:
    name = "a\u202e\u2028\x1b]0;mine\x07.py:reward"
    world.configure({"training.reward_function": name})
    ran = invoke("rewards", "replay", "run")
    assert refused(ran)
    assert not set(ran.output) & set("\u202e\u2028\x1b\x07")
    assert r"\u202e" in ran.stderr


def test_hidden_characters_of_a_warning_do_not_reach_the_terminal(world: World) -> None:
    invoke("report", "nowhere")
    assert logging.lastResort is not None
    assert logging.lastResort.format(logging.makeLogRecord({"msg": "a\u202e\x1b]0;mine"})) == r"a\u202e\x1b]0;mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("multirun.yaml", ["train", "--multirun", "seed=1,2", "hydra.sweep.dir=theirs"]),
        ("0", ["train", "--multirun", "seed=1,2", "hydra.sweep.dir=theirs"]),
        ("0", ["train", "--multirun", "seed=1,2", "hydra.sweep.dir='theirs'"]),
        ("trial_0000", ["tune", "seed=1,2", "--trials", "1", "--directory", "theirs"]),
        ("unbroken", ["verify-resume", "--directory", "theirs"]),
    ],
)
def test_no_run_is_written_through_a_link_of_a_strangers_directory(name: str, command: list[str], world: World) -> None:
    theirs, mine = world.here / "theirs", world.here / "mine"
    theirs.mkdir()
    if "." in name:
        mine.write_text("precious")
    else:
        mine.mkdir()
    (theirs / name).symlink_to(mine)
    done = subprocess.run(
        [sys.executable, "-m", "agent_tunix", *command], cwd=world.here, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "is a link" in done.stderr + done.stdout
    assert mine.read_text() == "precious" if "." in name else not list(mine.iterdir())
