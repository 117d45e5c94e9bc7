"""Runs whose reward is an uploaded one: fetched once, kept in the run, and never run in the trainer's process."""

import json
import os
import shutil
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, RewardError, UnknownRewardError
from agent_tunix.rewards import Sample
from agent_tunix.rewards.uploaded import uploaded_source_of
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.reward_setup import make_reward_runner, resolve_from_config
from agent_tunix.store import RewardFunctionRecord, open_store
from agent_tunix.training.train import train
from agent_tunix.training.verification import read_rows
from tests.raising import raises
from tests.training.support import small_run, train_config

LENGTH = b"""
LIMIT = 100

def reward(completions, answer=None, **kwargs):
    return [min(len(completion), LIMIT) / LIMIT for completion in completions]
"""
OTHER = LENGTH.replace(b"LIMIT = 100", b"LIMIT = 50")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own for each test."""
    for name in ("AGENT_TUNIX_URL", "AGENT_TUNIX_KEY", "AGENT_TUNIX_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def upload(name: str, source: bytes, format: str = "trl") -> RewardFunctionRecord:
    with open_store() as store:
        return store.reward_functions.create(store.keys.local(), name, source, format)  # type: ignore[arg-type]


def config_of(reward: object, *overrides: str) -> Config:
    config = small_run("training.eval_every_n_steps=0", *overrides)
    config.training.reward_function = reward
    config.rewards.num_workers = 1
    return config


def environment_of(run: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((run / "environment.json").read_text())["uploaded_rewards"]
    return found


def score_of(reward: object, response: str = "four") -> float | None:
    config = config_of(reward)
    mixture = resolve_from_config(config, Path.cwd())
    with make_reward_runner(mixture, config.rewards) as runner:
        return runner.reward.score([Sample(response, columns={"answer": "4"}, rollout_id="0_0_0")])[0].value


@pytest.mark.slow
def test_a_reward_is_found_by_its_id_and_by_its_name_which_means_its_newest_version(home: Path) -> None:
    first = upload("team.brevity", LENGTH)
    upload("team.brevity", OTHER)
    assert (score_of(first.id), score_of("team.brevity")) == (0.04, 0.08)


def test_a_name_of_the_package_is_not_looked_up_in_the_store(home: Path) -> None:
    upload("math", LENGTH)
    mixture = resolve_from_config(config_of("math"), Path.cwd())
    assert uploaded_source_of(mixture.components[0].reward) is None


@pytest.mark.slow
def test_uploaded_rewards_of_two_formats_are_components(home: Path) -> None:
    made = upload("brevity", LENGTH)
    source = b"async def reward(args, sample, **kwargs):\n    return float(sample.label)\n"
    label = upload("label", source, "miles").id
    components = {"short": {"function": made.id, "weight": 0.5}, "again": "brevity", "label": label}
    assert score_of(components) == pytest.approx(4.06)


@pytest.mark.slow
def test_nothing_of_an_uploaded_file_runs_in_this_process(home: Path) -> None:
    source = b"import os\nLOADED = os.getpid()\ndef reward(completions, **kwargs):\n    return [float(LOADED)]\n"
    config = config_of(upload("where", source).id)
    config.rewards.execution = "inline"
    mixture = preflight(config, Path.cwd()).mixture
    with make_reward_runner(mixture, config.rewards) as runner:
        value = runner.reward.score([Sample("", columns={"answer": ""}, rollout_id="0_0_0")])[0].value
    assert value not in (None, float(os.getpid()))


def test_calling_an_uploaded_reward_here_is_an_error(home: Path) -> None:
    made = upload("brevity", LENGTH)
    score = resolve_from_config(config_of(made.id), Path.cwd()).components[0].reward.score([Sample("four")])[0]
    assert (score.value, "must run in a worker process" in score.detail) == (None, True)


def test_an_unknown_id_fails_before_training(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownRewardError, match=r"rf_a+ in the store at sqlite"):
        preflight(config_of("rf_" + "a" * 24), tmp_path)


def test_a_mistyped_name_makes_no_store(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownRewardError, match="there is no reward 'brevty'"):
        preflight(config_of("brevty"), tmp_path)
    assert not home.exists()


def test_a_server_that_does_not_answer_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_URL", "http://127.0.0.1:9")
    with pytest.raises(RewardError, match=r"127\.0\.0\.1:9 requires a key[\s\S]*'brevty'"):
        preflight(config_of("brevty"), tmp_path)


def test_the_fingerprint_is_that_of_the_file_and_not_of_its_id(home: Path) -> None:
    from agent_tunix.rewards import fingerprint

    specs = [{"brevity": upload("brevity", source).id} for source in (LENGTH, LENGTH, OTHER)]
    one, same, other = [fingerprint(resolve_from_config(config_of(spec), Path.cwd())).short for spec in specs]
    assert one == same != other


@pytest.mark.slow
def test_a_run_keeps_the_file_it_was_trained_on_and_resumes_without_the_store(home: Path, tmp_path: Path) -> None:
    made = upload("brevity", LENGTH)
    run = tmp_path / "run"
    config = config_of("brevity", "training.save_interval_steps=2")
    whole = train_config(config, run)
    (kept,) = environment_of(run)
    assert (kept["id"], kept["version"], kept["sha256"]) == (made.id, 1, made.sha256)
    assert (run / str(kept["file"])).read_bytes() == LENGTH

    upload("brevity", OTHER)
    for checkpoint in (run / "checkpoints").glob("step_*4"):
        shutil.rmtree(checkpoint)
    shutil.rmtree(home)
    config.training.resume = True
    config.rewards.on_change = "refuse"
    train(preflight(config, tmp_path, run), run)
    assert read_rows(run) == whole
    assert environment_of(run) == [kept]

    (run / "rewards" / f"{made.id}.py").write_bytes(OTHER)
    with raises(CheckpointError, "reward_changed", "source"):
        train(preflight(config, tmp_path, run), run)
