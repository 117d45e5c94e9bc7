"""The request of `evaluate.py`: the model, the problems, and a model to compare with.

Importing this module does not load JAX.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import check
from agent_tunix.config.compose import EVALUATE_GROUPS, compose_overrides, with_values
from agent_tunix.config.harnesses import harness_tasks
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.data.prompting import settle_prompts
from agent_tunix.data.sources.paths import SUFFIXES
from agent_tunix.errors import ConfigError
from agent_tunix.rewards import Mixture
from agent_tunix.runs.code_parts import CodePart
from agent_tunix.runs.exported_prompts import find_prompts, with_prompts
from agent_tunix.runs.found_run import FoundRun, Step, check_step, find_run
from agent_tunix.runs.preflight import resolve_for_evaluation
from agent_tunix.runs.reward_setup import OWN_REWARD
from agent_tunix.runs.trust import correct_parts, data_parts, environment_parts, require_trust, reward_parts

_FILES_OF_RUNS = {"environment.json", "findings.jsonl", "metrics.jsonl", "status.json", "timings.json"}


@dataclass(frozen=True)
class Subject:
    """A model to evaluate."""

    run: FoundRun  # The run, with the requested evaluation settings. A plain model has a run with default settings.
    # Step of the checkpoint; None for the latest intact one, 0 for the model before training, `best` for the best.
    step: Step
    name: str  # directory of the run, or of the model
    # Base directory of the run's relative paths and modules
    working_directory: Path
    is_run: bool = True  # True if the model comes from a run; False for a plain model


@dataclass(frozen=True)
class EvaluationRequest:
    """A request for an evaluation."""

    subject: Subject
    other: Subject | None = None  # A model to compare with, on the same problems; None for no comparison
    mixture: Mixture | None = None  # the run's reward, to score the completions too; None to leave it out
    # The reward that `evaluation.correct` names; None for a built-in measure and the run's own reward.
    correct: Mixture | None = None
    # Group → key → value of settings that replace the run's own.
    replaced: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    # The JSON file to write; None for a file in the run's directory, or in the working directory for a plain model.
    output: Path | None = None

    @property
    def root(self) -> Path:
        """Directory of the run; the working directory for a plain model."""
        return self.subject.run.root


def read_request(asked: EvaluateConfig) -> EvaluationRequest:
    """Find the run and make all checks that need no JAX.

    Raises:
        ConfigError: `checkpoint_dir` is not a run, or a value is out of range.
        UntrustedRunError: A run is neither the user's own nor trusted, and would use code, commands or endpoints.
        DataError, RewardError: The run's reward is requested, but cannot be resolved or does not fit the data.
    """
    replaced = {group: getattr(asked, group) for group in EVALUATE_GROUPS if getattr(asked, group)}
    subject = _read_subject("checkpoint_dir", asked.checkpoint_dir, "step", asked.step, asked, replaced)
    with_reward = asked.with_rewards or subject.run.config.evaluation.correct == OWN_REWARD
    if subject.is_run:
        parts = correct_parts(subject.run.config, subject.working_directory)
        if with_reward:
            parts += reward_parts(subject.run.config, subject.working_directory)
        _require_trust(subject, parts, asked.trust, [*_own_data_parts(replaced), *_own_correct_parts(asked)])
    subject = _with_config(subject, settle_prompts(subject.run.config))
    other = None
    if asked.compare_with is not None:
        # The other run keeps its own model and prompt settings. It answers the problems of the first.
        data = {group: values for group, values in replaced.items() if group == "data"}
        other = _read_subject("compare_with", asked.compare_with, "compare_step", asked.compare_step, asked, data)
        _require_trust(other, [], asked.trust, _own_data_parts(data))
        other = _with_config(other, settle_prompts(other.run.config))
    elif asked.compare_step is not None:
        raise ConfigError(
            "compare_step requires compare_with, the directory of a run, but it is null; set compare_with=RUN",
            code="invalid_request",
        )
    if with_reward and not subject.is_run:
        raise ConfigError(
            "with_rewards=true and correct=reward require the reward of a run, but checkpoint_dir is null; set"
            " checkpoint_dir=RUN",
            code="invalid_request",
        )
    mixture, correct = resolve_for_evaluation(
        subject.run.config,
        subject.working_directory,
        subject.run.root if subject.is_run else None,
        with_reward=with_reward,
    )
    output = None if asked.output is None else Path(asked.output).expanduser().absolute()
    if output is not None and output.suffix == ".jsonl":
        raise ConfigError(
            f"output must be a .json file, next to which the problems are written as .jsonl, not {asked.output}",
            code="invalid_request",
        )
    if output is not None:
        _require_other_file(output, subject.run.config)
    return EvaluationRequest(subject, other, mixture, correct, replaced, output)


def _require_other_file(output: Path, config: Config) -> None:
    """Raise ConfigError if the evaluation would write over the problems that it reads, or over files of a run."""
    written = output.with_suffix(".jsonl")
    taken = {output.name, written.name} & _FILES_OF_RUNS
    if taken and (output.parent / "config.yaml").exists():
        raise ConfigError(
            f"output must leave {output.parent / taken.pop()} as it is, because it belongs to the run; give output "
            "another name",
            code="invalid_request",
        )
    for given in filter(None, (config.data.path, config.training.test_data_dir)):
        place = _place(given)
        if written in (place, place / f"{config.data.test_split}.jsonl"):
            raise ConfigError(
                f"output must leave {written} as it is, because it holds the problems; give output another name",
                code="invalid_request",
            )


def _with_config(subject: Subject, config: Config) -> Subject:
    return dataclasses.replace(subject, run=dataclasses.replace(subject.run, config=config))


def _require_trust(subject: Subject, rewards: Sequence[CodePart], trust: bool, own_parts: Sequence[CodePart]) -> None:
    """Refuse a run of others that would use code beside the rewards, in its data or environments, without trust."""
    config = subject.run.config
    parts = [*rewards, *data_parts(config), *environment_parts(config, subject.working_directory)]
    require_trust(subject.run.root, parts, trust=trust, own_parts=own_parts)


def _own_data_parts(values: Mapping[str, Mapping[str, Any]]) -> list[CodePart]:
    """Return the data parts that the user names, which need no trust."""
    return data_parts(_with_own(Config(), values))


def _own_correct_parts(asked: EvaluateConfig) -> list[CodePart]:
    """Return the code parts of a reward that the user names as `correct`."""
    own = Config()
    if asked.correct is not None:
        own.evaluation.correct = _absolute(asked.correct)
    return correct_parts(own, Path.cwd())


def _absolute(spec: str) -> str:
    """Return `file.py:function` with an absolute path, since a run looks up its files where it was started."""
    path, colon, name = spec.rpartition(":")
    return f"{Path(path).expanduser().absolute()}:{name}" if colon and path.endswith(".py") else spec


def _read_subject(
    key: str,
    directory: str | None,
    step_key: str,
    step: object,
    asked: EvaluateConfig,
    replaced: Mapping[str, Mapping[str, Any]],
) -> Subject:
    checked = check_step(step, step_key)
    if directory is None:
        return _plain_model(checked, asked, replaced)
    run = find_run(directory, key)
    config = _with_evaluation(_with_own(run.config, replaced), asked)
    return _with_config(Subject(run, checked, str(run.root), _working_directory(run.root)), config)


def _plain_model(step: Step, asked: EvaluateConfig, replaced: Mapping[str, Mapping[str, Any]]) -> Subject:
    """Return a model directory as a run with default settings; an export has the prompts of its run.

    Raises:
        ConfigError: `model.path` is missing, a step is given, or the export's settings are damaged.
    """
    model = dict(replaced.get("model", {}))
    path = model.get("path")
    if not isinstance(path, str):
        raise ConfigError(
            "checkpoint_dir is required: set it to the directory of a run, for example checkpoint_dir=outputs/…, or "
            "set model.path=DIR to evaluate a model",
            code="invalid_request",
        )
    if step not in (None, 0):
        raise ConfigError(
            f"step requires the checkpoints of a run, but model.path is a model directory; remove step={step}",
            code="invalid_request",
        )
    model.setdefault("model_family", None)  # the family comes from config.json
    model.setdefault("model_size", Path(path).name)
    config = compose_overrides([])
    if (prompts := find_prompts(Path(path).expanduser())) is not None:
        config = with_prompts(config, prompts)
    config = _with_own(config, {**replaced, "model": model})
    run = FoundRun(Path.cwd(), _with_evaluation(config, asked), Path.cwd() / "checkpoints")
    return Subject(run, 0, path, Path.cwd(), is_run=False)


def _with_own(config: Config, values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return a configuration with the user's values; problems that are not the run's own are measured whole."""
    changed = with_values(config, values)
    own = values.get("data", {})
    if "source" in own:
        changed = dataclasses.replace(changed, training=dataclasses.replace(changed.training, data_source=None))
    if "test_split" in own:
        changed = dataclasses.replace(changed, training=dataclasses.replace(changed.training, train_fraction=1.0))
    path = own.get("path")
    if not isinstance(path, str) or config.data.path in (path, str(_place(path))):
        return changed
    source = changed.training.data_source or changed.data.source
    is_file = _place(path).is_file() and (source in SUFFIXES or source == "auto")
    training = dataclasses.replace(changed.training, train_fraction=1.0, test_data_dir=path if is_file else None)
    return dataclasses.replace(changed, training=training)


def _place(given: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(given)))


def _with_evaluation(config: Config, asked: EvaluateConfig) -> Config:
    evaluation = dataclasses.replace(
        config.evaluation,
        inference_config=asked.inference_config,
        num_passes=asked.num_passes,
        num_samples=config.evaluation.num_samples if asked.num_samples is None else asked.num_samples,
        correct=config.evaluation.correct if asked.correct is None else _absolute(asked.correct),
        correct_at=config.evaluation.correct_at if asked.correct_at is None else asked.correct_at,
        harness=asked.harness,
        harness_limit=asked.harness_limit,
    )
    if evaluation.num_samples == 0:  # before other checks, which read the run's early stopping
        raise ConfigError(
            "num_samples must be at least 1, but the run did not evaluate its problems; set num_samples=N",
            code="invalid_request",
        )
    config = dataclasses.replace(config, evaluation=evaluation)
    check(config)
    for task in harness_tasks(evaluation):
        task.find_program()
    return config


def _working_directory(root: Path) -> Path:
    """Return the recorded working directory of the run, where its reward's files are looked up.

    If it is not recorded or no longer exists, return the current directory.
    """
    try:
        recorded = Path(json.loads((root / "environment.json").read_bytes())["working_directory"])
        return recorded if recorded.is_dir() else Path.cwd()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Path.cwd()
