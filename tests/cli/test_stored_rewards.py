import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_tunix.cli import main
from agent_tunix.rewards.isolation import requirements

ROOT = Path(__file__).parents[2]
REWARD = """\
def tidy(response, limit=40):
    return 1.0 if len(response) < limit else 0.0
"""
OVERRIDES = [
    "training.num_batches=3",
    "training.batch_size=4",
    "grpo.num_generations=4",
    "evaluation.num_samples=4",
    "evaluation.batch_size=4",
    "tracking.tensorboard=false",
    "tracking.progress=none",
    "training.eval_every_n_steps=0",
    "+reward.components.correct.function=math",
    "+reward.components.short={function: mine.py:tidy, weight: 0.5, requires: {correct: 0.5}}",
    "+reward.components.late={function: format, weight: {from: 0.0, to: 1.0, steps: [1, 3]}}",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which a run was started, which lies in `run`."""
    directory = tmp_path_factory.mktemp("trained")
    (directory / "mine.py").write_text(REWARD)
    command = [sys.executable, str(ROOT / "run_training.py"), *OVERRIDES, "hydra.run.dir=run"]
    subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return directory


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to stand in and to change."""
    directory = tmp_path / "here"
    shutil.copytree(trained, directory)
    monkeypatch.chdir(directory)
    return directory


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["rewards", *arguments])


def replayed(*arguments: str) -> dict[str, Any]:
    ran = invoke("replay", "run", "--json", *arguments)
    assert ran.exit_code in (0, 1), ran.output
    data: dict[str, Any] = json.loads(ran.stdout)
    return data


def test_the_unchanged_reward_gives_every_stored_total_and_advantage_again(here: Path) -> None:
    ran = invoke("replay", "run")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout == (
        "48 completions of 3 steps, in 12 groups\nevery total and every advantage is the stored one, to the last bit\n"
    )


def test_a_changed_weight_is_named_and_shown(here: Path) -> None:
    ran = invoke("replay", "run", "reward.components.late.weight=-1.0", "--show", "1")
    assert ran.exit_code == 1, ran.output
    assert "changed: weight of late" in ran.stdout
    assert "advantages changed" in ran.stdout


def test_a_changed_file_is_what_is_replayed(here: Path) -> None:
    (here / "mine.py").write_text(REWARD.replace("1.0 if", "2.0 if"))
    comparison = replayed("rewards.args.short.limit=1000", "--trust")  # a copy of the run, with another file beside it
    assert comparison["changed_components"].keys() == {"short"}
    assert comparison["newly_dead"] == 0


def test_scores_are_reused_where_nothing_changed(here: Path) -> None:
    comparison = replayed("--reuse", "reward.components.correct.weight=2.0")
    assert comparison["equal_totals"] < 48
    assert comparison["changed_components"] == {}


def test_another_reward_and_a_few_steps(here: Path) -> None:
    comparison = replayed("--reward", "[math, format]", "--steps", "2:3")
    assert comparison["steps"] == 2
    assert comparison["changed_components"] == {}


def test_an_edit_that_a_finding_advises_can_be_replayed(here: Path) -> None:
    assert replayed("++reward.components.late.weight=0.1")["completions"] == 48


def test_a_file_of_conf_reward_can_be_chosen(here: Path) -> None:
    assert replayed("reward=math_and_format")["completions"] == 48


def test_a_reward_agrees_with_itself(here: Path) -> None:
    ran = invoke("replay", "run", "--repeats", "2", "--json")
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    assert data["total"]["own_std"] == data["flips"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["seed=3"], "seed decides which completions are sampled"),
        (["prompt.format=x"], "prompt.format decides"),
        (["grpo.num_generations=2"], "grpo.num_generations decides"),
        (["rewards.argz.x=1"], "argz"),
        (["--steps", "early"], "steps must be FIRST:LAST"),
        (["--reward", "mine.py:needs"], "requires the parameter `difficulty`"),
        (["--repeats", "2", "--reuse"], "give one of them"),
    ],
)
def test_what_cannot_be_replayed_honestly_is_refused_by_name(arguments: list[str], told: str, here: Path) -> None:
    (here / "mine.py").write_text(REWARD + "\n\ndef needs(response, difficulty):\n    return 1.0\n")
    ran = invoke("replay", "run", "--trust", *arguments)
    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr


def test_a_changed_tokenizer_is_refused(here: Path) -> None:
    environment = json.loads((here / "run" / "environment.json").read_text())
    (here / "run" / "environment.json").write_text(json.dumps({**environment, "tokenizer_fingerprint": "0" * 16}))
    ran = invoke("replay", "run")
    assert ran.exit_code == 2
    assert "has changed since the run (0000000000000000 then" in ran.stderr


@pytest.mark.parametrize("directory", ["nowhere", "."])
def test_what_is_no_run_is_refused(directory: str, here: Path) -> None:
    ran = invoke("replay", directory)
    assert ran.exit_code == 2
    assert "the directory of a run, which holds a config.yaml" in ran.stderr


def test_a_run_without_rollouts_is_refused(here: Path) -> None:
    shutil.rmtree(here / "run" / "rollouts")
    ran = invoke("replay", "run")
    assert ran.exit_code == 2
    assert "train with rollouts.share above 0" in ran.stderr


def test_a_group_scaling_is_replayed_of_a_share_and_a_batch_scaling_is_not(here: Path) -> None:
    directory = here / "share"
    shutil.copy(here / "mine.py", here / "other.py")
    command = [
        sys.executable,
        str(ROOT / "run_training.py"),
        *OVERRIDES,
        "rollouts.share=0.5",
        f"hydra.run.dir={directory}",
    ]
    subprocess.run(command, cwd=here, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    whole, ran = invoke("replay", str(directory)), invoke("replay", str(directory), "grpo.advantage_scaling=batch")
    assert whole.exit_code == 0, whole.output
    assert ran.exit_code == 2
    assert "has only a share stored" in ran.stderr


def test_two_rewards_differ_in_code_and_on_completions(here: Path) -> None:
    (here / "other.py").write_text(REWARD.replace("1.0 if", "0.9 if"))
    ran = invoke("diff", "mine.py:tidy", "other.py:tidy", "--run", "run", "--show", "1")
    assert ran.exit_code == 1, ran.output
    assert "-    return 1.0 if" in ran.stdout
    assert "+    return 0.9 if" in ran.stdout
    assert "component tidy: differs on" in ran.stdout


def test_a_reward_does_not_differ_from_itself(here: Path) -> None:
    ran = invoke("diff", "mine.py:tidy", "mine.py:tidy", "--run", "run")
    assert ran.exit_code == 0, ran.output
    assert "the two are the same reward" in ran.stdout
    assert "every total and every advantage is the first reward's one" in ran.stdout


def test_a_run_stands_for_its_reward_and_tells_what_changed_since(here: Path) -> None:
    (here / "mine.py").write_text(REWARD.replace("1.0 if", "2.0 if"))
    ran = invoke("diff", "run", "math", "--json", "--trust")
    assert ran.exit_code == 1, ran.output
    assert "component short: removed" in json.loads(ran.stdout)["changes"]
    assert "since run was trained: component short: source of tidy changed" in ran.stderr


def test_a_replay_loads_no_jax(here: Path) -> None:
    program = """
import sys
from agent_tunix.cli import main
from agent_tunix.rewards.isolation import requirements
main(["rewards", "replay", "run"], standalone_mode=False)
"""
    checked = (
        f"try:\n    exec({program!r})\nfinally:\n    import sys\n    print('jax' in sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", checked], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.strip().endswith("False")


def test_an_uploaded_reward_that_cannot_be_isolated_judges_a_run_only_where_that_is_allowed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AGENT_TUNIX_URL", "AGENT_TUNIX_KEY", "AGENT_TUNIX_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(here / "home"))
    monkeypatch.setattr(requirements, "landlock_version", lambda: 0)
    monkeypatch.setattr(requirements, "_problems", requirements._problems.__wrapped__)
    (here / "kept.py").write_text("def reward(completions, **kwargs):\n    return [0.5 for _ in completions]\n")
    assert CliRunner().invoke(main, ["store", "upload", "kept.py"]).exit_code == 0
    judged = ("diff", "kept", "mine.py:tidy", "--run", "run")
    refused = invoke(*judged)
    assert (refused.exit_code, "--allow-unsandboxed" in refused.stderr) == (2, True)
    assert invoke(*judged, "--allow-unsandboxed").exit_code == 1
    assert invoke("replay", "run", "--reward", "kept").exit_code == 2
    assert invoke("replay", "run", "--reward", "kept", "rewards.allow_unsandboxed=true").exit_code == 1
