"""The request of `evaluate.py`: the model, the problems, and a model to compare with.

Importing this module does not load JAX.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import check
from agent_tunix.config.compose import EVALUATE_GROUPS, compose_overrides, with_values
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.data.prompting import settle_prompts
from agent_tunix.data.sources.paths import SUFFIXES
from agent_tunix.errors import ConfigError
from agent_tunix.regular_files import read_regular
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.code_parts import CodePart
from agent_tunix.runs.exported_prompts import find_prompts, with_prompts
from agent_tunix.runs.found_run import FoundRun, Step, check_step, find_run
from agent_tunix.runs.preflight import resolve_for_evaluation
from agent_tunix.runs.reward_setup import OWN_REWARD
from agent_tunix.runs.trust import correct_parts, data_parts, settle_trust
from agent_tunix.tracking.stored_run import PARTS


@dataclass(frozen=True)
class Subject:
    """A model to evaluate."""

    run: FoundRun  # The run, with the requested evaluation settings. A plain model has a run with default settings.
    # Step of the checkpoint; None for the latest intact one, 0 for the model before training, `best` for the best.
    step: Step
    name: str  # directory of the run, or of the model
    # Base directory of the run's relative paths and modules. It is read once, because trust in the run depends on it.
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


def read_request(settings: EvaluateConfig) -> EvaluationRequest:
    """Find the run and make all checks that need no JAX.

    Raises:
        ConfigError: `checkpoint_dir` is not a run, or a value is out of range.
        UntrustedRunError: A run is neither the user's own nor trusted, and would execute code or read private files.
        DataError, RewardError: The run's reward is requested, but cannot be resolved or does not fit the data.
    """
    replaced = {group: getattr(settings, group) for group in EVALUATE_GROUPS if getattr(settings, group)}
    subject = _read_subject("checkpoint_dir", settings.checkpoint_dir, "step", settings.step, settings, replaced)
    with_reward = settings.with_rewards or subject.run.config.evaluation.correct == OWN_REWARD
    if subject.is_run:
        config = settle_trust(
            subject.run.config,
            subject.run.root,
            working_directory=subject.working_directory,
            trust=settings.trust,
            own_parts=[*_own_data_parts(replaced, subject.run.root), *_own_correct_parts(settings)],
            with_reward=with_reward,
            with_correct=True,
            with_data=True,
            with_environment=True,
        )
        subject = _with_config(subject, config)
    subject = _with_config(subject, settle_prompts(subject.run.config))
    other = None
    if settings.compare_with is not None:
        # The other run keeps its own model and prompt settings. It answers the problems of the first.
        data = {group: values for group, values in replaced.items() if group == "data"}
        other = _read_subject(
            "compare_with", settings.compare_with, "compare_step", settings.compare_step, settings, data
        )
        settled = settle_trust(
            other.run.config,
            other.run.root,
            working_directory=other.working_directory,
            trust=settings.trust,
            own_parts=_own_data_parts(data, other.run.root),
            with_reward=False,
            with_data=True,
            with_environment=True,
        )
        other = _with_config(other, settle_prompts(settled))
    elif settings.compare_step is not None:
        raise ConfigError(
            "compare_step requires compare_with, the directory of a run, but it is null; set compare_with=RUN",
            code="compare_step_without_run",
        )
    if with_reward and not subject.is_run:
        raise ConfigError(
            "with_rewards=true and correct=reward require the reward of a run, but checkpoint_dir is null; set"
            " checkpoint_dir=RUN",
            code="rewards_without_run",
        )
    mixture, correct = resolve_for_evaluation(
        subject.run.config,
        subject.working_directory,
        subject.run.root if subject.is_run else None,
        with_reward=with_reward,
    )
    output = None if settings.output is None else Path(settings.output).expanduser().absolute()
    if output is not None and output.suffix == ".jsonl":
        raise ConfigError(
            f"output must be a .json file, next to which the problems are written as .jsonl, not {settings.output}",
            code="invalid_output",
        )
    if output is not None:
        _require_other_file(output, subject.run.config)
    return EvaluationRequest(subject, other, mixture, correct, replaced, output)


def _require_other_file(output: Path, config: Config) -> None:
    """Raise ConfigError if the evaluation would write over the problems that it reads, or over files of a run."""
    samples_file = output.with_suffix(".jsonl")
    names = {output.name, samples_file.name} & {*PARTS}
    if names and (output.parent / "config.yaml").exists():
        raise ConfigError(
            f"output must leave {output.parent / names.pop()} as it is, because it belongs to the run; give output "
            "another name",
            code="output_is_of_run",
        )
    for path in filter(None, (config.data.path, config.training.test_data_dir)):
        place = _place(path)
        if samples_file in (place, place / f"{config.data.test_split}.jsonl"):
            raise ConfigError(
                f"output must leave {samples_file} as it is, because it holds the problems; give output another name",
                code="output_is_data",
            )


def _with_config(subject: Subject, config: Config) -> Subject:
    return dataclasses.replace(subject, run=dataclasses.replace(subject.run, config=config))


def _own_data_parts(values: Mapping[str, Mapping[str, Any]], root: Path) -> list[CodePart]:
    """Return the data parts that the user names, which need no trust; the run's checkpoints are left out."""
    parts = data_parts(_with_own(Config(), values), root)
    return [part for part in parts if part.component != "training.checkpoint_dir"]


def _own_correct_parts(settings: EvaluateConfig) -> list[CodePart]:
    """Return the code parts of a reward that the user names as `correct`."""
    own = Config()
    if settings.correct is not None:
        own.evaluation.correct = _absolute(settings.correct)
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
    settings: EvaluateConfig,
    replaced: Mapping[str, Mapping[str, Any]],
) -> Subject:
    checked_step = check_step(step, step_key)
    if directory is None:
        return _plain_model(checked_step, settings, replaced)
    run = find_run(directory, key)
    config = _with_evaluation(_with_own(run.config, replaced), settings)
    return _with_config(Subject(run, checked_step, str(run.root), _working_directory(run.root)), config)


def _plain_model(step: Step, settings: EvaluateConfig, replaced: Mapping[str, Mapping[str, Any]]) -> Subject:
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
            code="missing_checkpoint_dir",
        )
    if step not in (None, 0):
        raise ConfigError(
            f"step requires the checkpoints of a run, but model.path is a model directory; remove step={step}",
            code="step_without_run",
        )
    model.setdefault("model_family", None)  # the family comes from config.json
    model.setdefault("model_size", Path(path).name)
    config = compose_overrides([])
    if (prompts := find_prompts(Path(path).expanduser())) is not None:
        config = with_prompts(config, prompts)
    config = _with_own(config, {**replaced, "model": model})
    run = FoundRun(Path.cwd(), _with_evaluation(config, settings), Path.cwd() / "checkpoints")
    return Subject(run, 0, path, Path.cwd(), is_run=False)


def _with_own(config: Config, values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return a configuration with the user's values; problems that are not the run's own are measured whole."""
    new_config = with_values(config, values)
    own = values.get("data", {})
    if "source" in own:
        new_config = dataclasses.replace(
            new_config, training=dataclasses.replace(new_config.training, data_source=None)
        )
    if "test_split" in own:
        new_config = dataclasses.replace(
            new_config, training=dataclasses.replace(new_config.training, train_fraction=1.0)
        )
    path = own.get("path")
    if not isinstance(path, str) or config.data.path in (path, str(_place(path))):
        return new_config
    source = new_config.training.data_source or new_config.data.source
    is_file = _place(path).is_file() and (source in SUFFIXES or source == "auto")
    training = dataclasses.replace(new_config.training, train_fraction=1.0, test_data_dir=path if is_file else None)
    return dataclasses.replace(new_config, training=training)


def _place(name: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(name)))


def _with_evaluation(config: Config, settings: EvaluateConfig) -> Config:
    evaluation = dataclasses.replace(
        config.evaluation,
        inference_config=settings.inference_config,
        num_passes=settings.num_passes,
        num_samples=config.evaluation.num_samples if settings.num_samples is None else settings.num_samples,
        correct=config.evaluation.correct if settings.correct is None else _absolute(settings.correct),
        correct_at=config.evaluation.correct_at if settings.correct_at is None else settings.correct_at,
    )
    config = dataclasses.replace(config, evaluation=evaluation)
    check(config)
    if evaluation.num_samples == 0:
        raise ConfigError(
            "num_samples must be at least 1, but the run did not evaluate; set num_samples=N", code="no_samples"
        )
    return config


def _working_directory(root: Path) -> Path:
    """Return the recorded working directory of the run, where its reward's files are looked up.

    If it is not recorded or no longer exists, return the current directory.
    """
    try:
        directory = Path(json.loads(read_regular(root / "environment.json"))["working_directory"])
        return directory if directory.is_dir() else Path.cwd()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Path.cwd()
