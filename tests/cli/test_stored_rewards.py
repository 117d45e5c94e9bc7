"""`agent-tunix rewards replay` and `diff` on a trained run; tests/workbench/replay has the replay itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.training.support import train_run

from agent_tunix.cli import main
from agent_tunix.config.compose import from_yaml
from agent_tunix.execution.isolation import requirements
from agent_tunix.runs.trust import record_run
from agent_tunix.tracking import StoredRun
from agent_tunix.tracking.rollouts import RolloutWriter

pytestmark = pytest.mark.slow

REWARD = """\
def tidy(response, limit=40):
    return 1.0 if len(response) < limit else 0.0


def needs(response, difficulty):
    return 1.0
"""
OVERRIDES = [
    "training.num_batches=3",
    "training.eval_every_n_steps=0",
    "+reward.components.correct.function=math",
    "+reward.components.short={function: mine.py:tidy, weight: 0.5, requires: {correct: 0.5}}",
    "+reward.components.late={function: format, weight: {from: 0.0, to: 1.0, steps: [1, 3]}}",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    (directory / "mine.py").write_text(REWARD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        train_run(directory / "run", *OVERRIDES)
    return directory


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the working directory, and runs in it that count as the user's own."""
    directory = tmp_path / "here"
    shutil.copytree(trained, directory)
    for name in ("run", "retokenized", "empty", "share"):
        record_run(directory / name)
    monkeypatch.chdir(directory)
    return directory


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["rewards", *arguments])


def replayed(*arguments: str) -> dict[str, Any]:
    ran = invoke("replay", "run", "--json", *arguments)
    assert ran.exit_code in (0, 1), ran.output
    data: dict[str, Any] = json.loads(ran.stdout)
    return data


def test_the_unchanged_reward_gives_every_stored_total_and_advantage_again_without_jax(here: Path) -> None:
    program = (
        "import sys\nfrom agent_tunix.cli import main\n"
        "try:\n    main(['rewards', 'replay', 'run'])\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "assert 'jax' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "48 completions of 3 steps, in 12 groups\nevery total and every advantage is the stored one, to the last bit\n"
    )


def test_changes_of_the_reward_are_named_and_shown(here: Path) -> None:
    ran = invoke("replay", "run", "reward.components.late.weight=-1.0", "--show", "1")
    assert ran.exit_code == 1, ran.output
    assert "changed: weight of late" in ran.stdout
    assert "advantages changed" in ran.stdout
    reused = replayed("--reuse", "reward.components.correct.weight=2.0")
    assert reused["equal_totals"] < 48
    assert reused["changed_components"] == {}
    other = replayed("--reward", "[math, format]", "--steps", "2:3")
    assert (other["steps"], other["changed_components"]) == (2, {})
    for override in ("++reward.components.late.weight=0.1", "reward=math_and_format"):
        assert replayed(override)["completions"] == 48
    (here / "mine.py").write_text(REWARD.replace("1.0 if", "2.0 if"))
    changed = replayed("rewards.args.short.limit=1000", "--trust")
    assert changed["changed_components"].keys() == {"short"}
    assert changed["newly_dead"] == 0


def test_a_reward_agrees_with_itself(here: Path) -> None:
    ran = invoke("replay", "run", "--twice")
    assert (ran.exit_code, ran.stdout.endswith("the first scoring's one, to the last bit\n")) == (0, True), ran.output


def test_a_reward_that_draws_lots_differs_from_itself(here: Path) -> None:
    (here / "lots.py").write_text("import random\ndef drawn(response):\n    return random.random()\n")
    ran = invoke("replay", "run", "--twice", "--reward", "lots.py:drawn", "--json")
    assert (ran.exit_code, json.loads(ran.stdout)["equal_totals"]) == (1, 0), ran.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "seed=3"], "seed cannot be changed in a replay"),
        (["run", "prompt.format=x"], "prompt.format cannot be changed"),
        (["run", "grpo.num_generations=2"], "grpo.num_generations cannot be changed"),
        (["run", "rewards.argz.x=1"], "argz"),
        (["run", "--steps", "early"], "FIRST:LAST"),
        (["run", "--steps", "90:99"], "no step of 90:99 is stored"),
        (["run", "--reward", "mine.py:needs"], "requires the parameter `difficulty`"),
        (["run", "--twice", "--reuse"], "is allowed; remove one of them"),
        (["nowhere"], "the directory of a run"),
        (["."], "the directory of a run"),
        (["retokenized"], "0000000000000000 then"),
        (["empty"], "the run ended before it saved any"),
        (["share", "grpo.advantage_scaling=batch"], "has only a share stored"),
    ],
)
def test_an_impossible_replay_is_refused(arguments: list[str], told: str, here: Path) -> None:
    for name in ("retokenized", "empty", "share"):
        if name in arguments:
            shutil.copytree("run", name)
    if "retokenized" in arguments:
        environment = json.loads((here / "run" / "environment.json").read_text())
        (here / "retokenized" / "environment.json").write_text(
            json.dumps({**environment, "tokenizer_fingerprint": "0" * 16})
        )
    if {"empty", "share"} & set(arguments):
        shutil.rmtree(here / arguments[0] / "rollouts")
    if "share" in arguments:
        config = from_yaml(here / "share" / "config.yaml").rollouts
        config.share = 0.5
        with RolloutWriter(here / "share" / "rollouts", config, seed=0) as writer:
            for stored in StoredRun(here / "run").rollouts.iterate():
                writer.write(stored)
        assert invoke("replay", "share").exit_code == 0
    ran = invoke("replay", *arguments)
    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr


def test_two_rewards_differ_in_code_and_on_completions(here: Path) -> None:
    (here / "other.py").write_text(REWARD.replace("1.0 if", "0.9 if"))
    ran = invoke("diff", "mine.py:tidy", "other.py:tidy", "--run", "run", "--show", "1")
    assert ran.exit_code == 1, ran.output
    for said in ("-    return 1.0 if", "+    return 0.9 if", "component tidy: differs on"):
        assert said in ran.stdout
    same = invoke("diff", "mine.py:tidy", "mine.py:tidy", "--run", "run")
    assert same.exit_code == 0, same.output
    assert "the two are the same reward" in same.stdout
    assert "every total and every advantage is the first reward's one" in same.stdout


def test_a_run_stands_for_its_reward_and_shows_what_changed_since(here: Path) -> None:
    (here / "mine.py").write_text(REWARD.replace("1.0 if", "2.0 if"))
    ran = invoke("diff", "run", "math", "--json", "--trust")
    assert ran.exit_code == 1, ran.output
    assert "component short: removed" in json.loads(ran.stdout)["changes"]
    assert "since run was trained: component short: source of tidy changed" in ran.stderr


def test_an_uploaded_reward_that_cannot_be_isolated_runs_only_where_that_is_allowed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AGENT_TUNIX_URL", "AGENT_TUNIX_KEY", "AGENT_TUNIX_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(here / "home"))
    monkeypatch.setattr(requirements, "landlock_version", lambda: 0)
    (here / "kept.py").write_text("def reward(completions, **kwargs):\n    return [0.5 for _ in completions]\n")
    assert CliRunner().invoke(main, ["store", "upload", "kept.py"]).exit_code == 0
    judged = ("diff", "kept", "mine.py:tidy", "--run", "run")
    refused = invoke(*judged)
    assert (refused.exit_code, "--allow-unsandboxed" in refused.stderr) == (2, True)
    assert invoke(*judged, "--allow-unsandboxed").exit_code == 1
    assert invoke("replay", "run", "--reward", "kept").exit_code == 2
    assert invoke("replay", "run", "--reward", "kept", "rewards.allow_unsandboxed=true").exit_code == 1
