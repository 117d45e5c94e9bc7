"""Searches with the real Optuna over real small runs, which are processes of their own."""

import json
import os
import sys
from pathlib import Path

import pytest

from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.training.tuning import Choice, Search, SearchRange, tune
from tests.raising import raises
from tests.small_run import SMALL_RUN

optuna = pytest.importorskip("optuna", reason='Optuna is not installed; pip install "agent_tunix[sweep]"')

# The command has no JAX in its process, as these tests may have from others: there a fork would be a danger.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
]

QUICK = (*SMALL_RUN, "training.eval_every_n_steps=2")


def search(directory: Path, trials: int, **changes: object) -> Search:
    values: dict[str, object] = {
        "fixed": QUICK,
        "space": {"optimizer.learning_rate": SearchRange(1e-5, 1e-3, log=True)},
        "metric": "eval/accuracy",
        "direction": "max",
        "directory": directory,
        "trials": trials,
    }
    return Search(**{**values, **changes})  # type: ignore[arg-type]


def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    tmp_path /= "für alle"
    first = tune(search(tmp_path, 1))
    assert first is not None
    assert first.number == 0
    best = tune(search(tmp_path, 2))
    assert best is not None
    trials = optuna.load_study(study_name="agent_tunix", storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE"]
    assert trials[0].params != trials[1].params
    for trial in trials:
        root = tmp_path / f"trial_{trial.number:04d}"
        rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
        assert trial.value == rows[-1]["eval/accuracy"]
        assert trial.intermediate_values == {2: rows[2]["eval/accuracy"], 4: rows[4]["eval/accuracy"]}
    assert best.value == max(trial.value for trial in trials)
    assert tune(search(tmp_path, 2)) == best  # there is nothing left to do
    with raises(ConfigError, "invalid_search", "continue with 'eval/accuracy'"):
        tune(search(tmp_path, 2, metric="policy/kl"))


def failing_search(directory: Path) -> Search:
    """One trial without its data, which no check of the configuration can know."""
    space = {"data.path": Choice(("null", str(directory / "absent")))}
    return search(directory, 1, space=space, fixed=(*QUICK, "data.source=jsonl"), seed=1)


def test_trials_that_are_worse_than_the_median_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three trials are told to Optuna as they would be; the fourth is a real run, which is stopped while it trains."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(storage=storage, study_name="agent_tunix", direction="maximize")
    for _ in range(3):
        trial = study.ask({"optimizer.learning_rate": optuna.distributions.FloatDistribution(1e-5, 1e-3, log=True)})
        trial.report(2.0, 1)
        trial.set_user_attr("overrides", {"optimizer.learning_rate": "1e-4"})
        study.tell(trial, 2.0)
    fixed = (*SMALL_RUN, "training.num_batches=100000", "training.eval_every_n_steps=1")
    best = tune(search(tmp_path, 4, fixed=fixed, prune=True))
    assert best is not None
    assert best.value == 2.0
    pruned = optuna.load_study(study_name="agent_tunix", storage=storage).trials[3]
    assert pruned.state.name == "PRUNED"
    assert json.loads((tmp_path / "trial_0003" / "status.json").read_text())["status"] == "stopped"


def test_what_no_trial_could_run_is_refused_before_one_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.momentum 0\.5 has no effect with"):
        tune(search(tmp_path, 1, fixed=[*QUICK, "optimizer.momentum=0.5"]))
    with pytest.raises(ConfigError, match=r"grpo\.loss must be one of"):
        tune(search(tmp_path, 1, fixed=[*QUICK, "grpo.loss=gpro"]))
    with raises(ConfigError, "invalid_search"):
        tune(search(tmp_path, 1, space={}))
    assert list(tmp_path.iterdir()) == []


def test_a_trial_that_fails_is_failed(tmp_path: Path) -> None:
    assert tune(failing_search(tmp_path / "tuned")) is None
    trials = optuna.load_study(study_name="agent_tunix", storage=f"sqlite:///{tmp_path / 'tuned' / 'study.db'}").trials
    assert [trial.state.name for trial in trials] == ["FAIL"]
    assert "its run exited with status 2" in trials[0].user_attrs["error"]


def test_two_searches_do_not_share_a_directory(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / ".tune.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with raises(RunDirectoryError, "directory_in_use"):
            tune(search(tmp_path, 1))


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with raises(ConfigError, "missing_package"):
        tune(search(tmp_path, 1))
    assert os.listdir(tmp_path) == []
