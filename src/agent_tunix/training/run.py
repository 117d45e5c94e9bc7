"""A training run, from top to bottom: load, build, resume, train, evaluate, report.

The order inside a step is what makes a resumed run equal an unbroken one: the step's row reaches `metrics.jsonl` before
its checkpoint does, and resuming cuts the rows past the checkpoint.
"""

import dataclasses
import logging
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import absl.logging
import jax

from agent_tunix.config.compose import from_yaml, to_yaml
from agent_tunix.config.optimizers import filled
from agent_tunix.config.schema import Config, RewardConfig
from agent_tunix.data.pinning import pin_data
from agent_tunix.errors import (
    CheckpointError,
    DataError,
    Interrupted,
    NonFiniteUpdateError,
    RewardError,
    RewardFailureRateError,
)
from agent_tunix.policy.directory import fingerprint_tokenizer, pin_model
from agent_tunix.rewards import Mixture, fingerprint
from agent_tunix.rewards.diagnosis import RunContext
from agent_tunix.tracking import Recorder, RunLog, compare_ends, missing_steps, read_rows, summary_table
from agent_tunix.tracking.outcome import Attempt, recorded_outcome
from agent_tunix.training import run_directory
from agent_tunix.training.base_model import METADATA_KEY, check_base
from agent_tunix.training.building import Material, build_material, training_sampling
from agent_tunix.training.checkpoints import Checkpoints
from agent_tunix.training.early_stopping import BestSoFar
from agent_tunix.training.evaluation import evaluate
from agent_tunix.training.initial import describe_initial, pin_initial
from agent_tunix.training.judging import Evaluation
from agent_tunix.training.learner import (
    PromptBatch,
    StepResult,
    StepSettings,
)
from agent_tunix.training.metrics import StepMetrics
from agent_tunix.training.preflight import Checked
from agent_tunix.training.reporting import report
from agent_tunix.training.reward_setup import make_reward_runner
from agent_tunix.training.run_directory import RunDirectory
from agent_tunix.training.state import (
    changed_since,
    make_metadata,
    read_state,
    reward_changed_since,
    write_state,
)
from agent_tunix.training.stopping import StopRequest
from agent_tunix.training.storing import scoring_settings, to_stored
from agent_tunix.training.watching import Watching, describe_run

_LOGGER = logging.getLogger("agent_tunix.run")
# By which command a run of each method is begun and gone on with.
_COMMANDS = {"grpo": "agent-tunix train", "sft": "agent-tunix sft"}
_STOPPED = (Interrupted, NonFiniteUpdateError, RewardFailureRateError)


@dataclass(frozen=True)
class Summary:
    """What a finished run comes to.

    Attributes:
        before: Metrics of the evaluation before training.
        after: Metrics of the evaluation after it.
        places: Where everything lies.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    places: RunDirectory


def train(checked: Checked, root: Path, overrides: Sequence[str] = ()) -> Summary:
    """Run GRPO as configured.

    Args:
        checked: A configuration that passed `preflight`, and its reward.
        root: The run's directory.
        overrides: What was asked for on the command line; kept beside how the run ended.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: What was required, what arrived and what to do.
        RewardFailureRateError, NonFiniteUpdateError, Interrupted: The run stopped early; a checkpoint was saved.
    """
    config = settle(checked.config, root)
    checked = replace(checked, config=config)
    places = run_directory.claim(config, root)
    quieten_libraries()
    with (
        run_directory.hold(root),
        recorded_outcome(root, overrides) as attempt,
        RunLog(places.log, config.training.log_level),
        StopRequest() as stop,
        make_reward_runner(checked.mixture, config.rewards) as rewards,
    ):
        config = pin(config, places)
        # From here on the mixture is the one that the workers serve; they start while the model loads.
        checked = replace(checked, config=config, mixture=rewards.reward)
        _LOGGER.info("reward: %s", checked.mixture.describe())
        material = build_material(config, checked.mixture)
        checked = replace(checked, config=material.config)
        try:
            return Run(checked, places, material, stop).complete(attempt)
        finally:
            material.learner.rl_cluster.close()


def settle(config: Config, root: Path) -> Config:
    """The configuration as the run keeps it: what depends on the moment or on the working directory is written out."""
    config = pin_initial(run_directory.with_absolute_places(config), root)
    return replace(config, optimizer=filled(config.optimizer), scheduler=filled(config.scheduler))


def pin(config: Config, places: RunDirectory) -> Config:
    """The configuration that says which state of a hub's model and data it means: that of the run it goes on with."""
    recorded = from_yaml(places.config) if places.config.exists() else None
    model = pin_model(config.model, recorded.model if recorded is not None else None)
    return pin_data(replace(config, model=model), recorded)


def quieten_libraries() -> None:
    """Leave out what Tunix and JAX say of themselves below a warning, or of no consequence here."""
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.getLogger("jax").setLevel(logging.WARNING)


def resume_command(root: Path) -> str:
    """The command line that goes on with this run."""
    arguments = [a for a in sys.argv[1:] if not a.startswith(("hydra.run.dir=", "training.resume="))]
    program = ["python", sys.argv[0]] if sys.argv[0].endswith(".py") else Path(sys.argv[0]).name.split()
    return shlex.join([*program, *arguments, f"hydra.run.dir={root}", "training.resume=true"])


def _record_start(
    config: Config, mixture: Mixture, context: RunContext, places: RunDirectory, method: str, material: Material
) -> None:
    if places.config.exists() and _compared(from_yaml(places.config)) != _compared(config):
        _LOGGER.warning("the configuration is not the one this run was started with; %s is renewed", places.config)
    run_directory.write_text(places.config, to_yaml(config))
    devices = [str(device) for device in jax.devices()]
    directory = material.directory
    model = {"path": config.model.path, "directory": str(directory), "digest": material.model_digest}
    environment = run_directory.describe_environment(
        mixture.describe(),
        fingerprint(mixture).to_data(),
        model,
        fingerprint_tokenizer(directory),
        devices,
        context.to_data(),
    )
    environment |= {"method": method, "init_checkpoint": describe_initial(config)}
    run_directory.write_json(places.environment, environment)


def _compared(config: Config) -> str:
    """What must be as it was when a run is resumed.

    Where the reward's files lie takes no part: seen from another directory they have other names. What is in them is
    compared by their fingerprint.
    """
    training = dataclasses.replace(config.training, resume=True, reward_function=None)
    rewards = dataclasses.replace(config.rewards, modules=[])
    return to_yaml(dataclasses.replace(config, training=training, rewards=rewards, reward=RewardConfig()))


@dataclass(frozen=True)
class Learned:
    """What was learned from the prompts of a step.

    Attributes:
        row: The metrics.
        finite: Whether every update was finite.
        updates_applied: Updates that changed the weights.
        loss: For the message where one was not.
        grad_norm: Likewise.
        result: The completions and their scores, where there are any.
    """

    row: dict[str, Any]
    finite: bool
    updates_applied: int
    loss: float | None
    grad_norm: float | None
    result: StepResult | None = None


class Run:
    """The steps of one run, and what happens between them.

    Attributes:
        method: How it learns; a checkpoint of another method is not gone on with.
    """

    method = "grpo"

    def __init__(self, checked: Checked, places: RunDirectory, material: Material, stop: StopRequest) -> None:
        """Open what the run writes to; `complete` does the work."""
        self._checked = checked
        self._config = checked.config
        self._mixture = checked.mixture
        self._places = places
        self._material = material
        self._stop = stop
        self._max_steps = material.batches.num_steps
        self._settings = StepSettings(checked.config, training_sampling(checked.config), self._max_steps)
        self._checkpoints = Checkpoints(places.checkpoints, checked.config.training.max_checkpoints_to_keep)
        self._scoring = scoring_settings(checked.config, checked.mixture)
        self._saved_step = 0
        self._metadata = make_metadata(
            checked.config,
            checked.mixture,
            material.prompting,
            material.model_digest,
            self._max_steps,
        )
        if self.method != Run.method:
            self._metadata["method"] = self.method
        self._recorder: Recorder
        self._metrics = StepMetrics(checked.mixture, checked.config)
        self._watching: Watching
        self._best = BestSoFar(checked.config.stopping)

    def complete(self, attempt: Attempt) -> Summary:
        """From the last checkpoint, or the start, to the end; `attempt` begins once nothing can refuse it."""
        started = time.perf_counter()
        first = self._resume()
        attempt.begin()
        # Only now, so that a resume that was refused leaves the run's own configuration.
        context = describe_run(self._checked, self._max_steps)
        _record_start(self._config, self._mixture, context, self._places, self.method, self._material)
        kept = first if self._saved_step else None
        places = self._places
        try:
            with (
                Recorder(
                    self._config, places.metrics, places.tensorboard, places.root, self._max_steps, kept
                ) as self._recorder,
                Watching(context, places, kept) as self._watching,
            ):
                if first == 0:
                    self._record(0, self._evaluate().metrics(), judged=True)
                last = self._take_steps(first)
        except _STOPPED:
            report(self._config, places.root)  # A run that stopped early is looked at most.
            raise
        seconds = time.perf_counter() - started
        reports = report(self._config, places.root)
        rows = read_rows(places.metrics)
        if self._config.tracking.progress != "none":
            before, after = compare_ends(rows)
            locations = self._list_places() | reports
            print(summary_table(before, after, locations, num_steps=last, seconds=seconds))
        evaluations = [row for row in rows if "eval/accuracy" in row]
        return Summary(evaluations[0], evaluations[-1], self._places)

    def _take_steps(self, first: int) -> int:
        """Every step past the first ones, or until the metric of `stopping` gives up; the last step taken."""
        for step in range(first + 1, self._max_steps + 1):
            if reason := self._best.reason_to_stop:
                _LOGGER.info("the run ends early, after step %d of %d: %s", step - 1, self._max_steps, reason)
                self._save(step - 1)
                return step - 1
            self._stop_if_asked(step - 1)
            self._take_step(step)
        return max(first, self._max_steps)

    def _take_step(self, step: int) -> None:
        training = self._config.training
        is_last = step == self._max_steps
        try:
            learned = self._learn(step)
        except (RewardFailureRateError, RewardError) as error:
            self._save(step - 1)
            raise RewardFailureRateError(f"{error}\n{self._how_to_resume(step - 1)}") from error
        row, result = learned.row, learned.result
        if not learned.finite:
            self._recorder.record(step, row)
            self._watching.observe(step, row, result)
            if learned.updates_applied:  # the step counts, and a resumed run goes on after it
                self._mixture.observe(step, row)
            self._stop_not_finite(step, learned)
        evaluated = is_last or _is_due(step, training.eval_every_n_steps)
        if evaluated:
            row |= self._evaluate().metrics()
        is_best = self._record(step, row, result, judged=evaluated)
        if is_best or is_last or _is_due(step, training.save_interval_steps):
            self._save(step)
        if is_best:
            self._checkpoints.mark_best(step)

    def _learn(self, step: int) -> Learned:
        """Sample, score and update."""
        started = time.perf_counter()
        result = self._material.learner.run_step(
            step, self._batch(step), self._settings, lambda number: self._more_prompts(step, number)
        )
        self._log_scores(step, result)
        if all(score.value is None for score in result.scores):
            _LOGGER.warning(
                "step %d: no completion was scored, so nothing was learned: %s", step, result.scores[0].detail
            )
        seconds = time.perf_counter() - started
        row = self._metrics.row(step, result, self._learning_rate(), seconds)
        row |= self._recorder.store(to_stored(step, result, self._scoring))
        loss, grad_norm = result.policy["loss"], result.policy["grad_norm"]
        return Learned(row, result.finite, result.updates_applied, loss, grad_norm, result)

    def _learning_rate(self) -> float:
        """Of the last update that was made, whatever a step skipped."""
        return float(self._material.schedule(max(self._material.learner.num_updates - 1, 0)))

    def _record(self, step: int, row: dict[str, Any], result: StepResult | None = None, *, judged: bool) -> bool:
        """Show a row to the trackers, to the diagnosis, and to weights that follow a metric.

        Returns:
            Whether the step is the best so far, where it is judged.
        """
        self._recorder.record(step, row)
        self._watching.observe(step, row, result)
        self._mixture.observe(step, row)
        return self._best.observe(step, row, judged)

    def _batch(self, step: int) -> PromptBatch:
        try:
            return self._material.batches.batch(step)
        except DataError as error:  # of rows that are read as they are needed
            self._save(step - 1)
            raise DataError(f"{error}\n{self._how_to_resume(step - 1)}") from error

    def _more_prompts(self, step: int, number: int) -> PromptBatch:
        """The prompts of a further round of dynamic sampling: those of the steps that follow, past the last the first.

        So they follow from the step's number, as its own prompts do, keep to the order of the data, and leave that of
        the other steps as it is: a prompt that was sampled early is sampled again at its own step.
        """
        return self._batch((step - 1 + number) % self._max_steps + 1)

    def _evaluate(self) -> Evaluation:
        cluster = self._material.learner.rl_cluster
        return evaluate(cluster.rollout, self._material.held_out, self._config, self._material.mesh)

    def _resume(self) -> int:
        """The step to go on from; 0 starts afresh."""
        if not self._config.training.resume:
            return 0
        restored = self._checkpoints.restore_latest(read_state(self._material.learner))
        if restored is None:
            _LOGGER.info("nothing to resume in %s; starting afresh", self._places.checkpoints)
            return 0
        if (method := restored.metadata.get("method", Run.method)) != self.method:
            raise CheckpointError(
                f"{self._places.root} is a run of `{_COMMANDS[method]}`; go on with it by that command, or begin"
                " another run with its weights by training.init_checkpoint"
            )
        material = self._material
        before, now = restored.metadata.get(METADATA_KEY), material.model_digest
        check_base(self._config, material.directory, before, now, weights_matter=True)
        for line in changed_since(restored.metadata, self._metadata):
            _LOGGER.warning("since the checkpoint was written, %s", line)
        self._check_reward(restored.metadata)
        if restored.metadata["data"] != self._material.batches.fingerprint(restored.step):
            raise CheckpointError(
                "the training rows are not those that the checkpoint was trained on, so the data position means"
                f" nothing; {self._how_to_restore_rows(restored.metadata)}, or start a new run"
            )
        if restored.metadata.get("reference_sync_steps", 0) > 0 and not self._material.learner.reference_moves:
            raise CheckpointError(
                "the checkpoint's reference policy is not what training began with, which this run would take instead;"
                f" resume with grpo.reference_sync_steps={restored.metadata['reference_sync_steps']} and grpo.beta"
                f" above 0, or start a new run"
            )
        write_state(self._material.learner, restored.state)
        self._mixture.load_state_dict(restored.metadata.get("mixture", {}))
        if missing := missing_steps(self._places.metrics, restored.step):
            _LOGGER.warning(
                "%s lacks the rows of steps that the checkpoint of step %d comes after: %s. Training goes on without"
                " them; what is drawn from that file will have gaps",
                self._places.metrics,
                restored.step,
                _name_ranges(missing),
            )
        self._judge_again(restored.step)
        self._checkpoints.remove_after(restored.step)
        self._saved_step = restored.step
        _LOGGER.info("resumed from the checkpoint of step %d", restored.step)
        return restored.step

    def _how_to_restore_rows(self, metadata: dict[str, Any]) -> str:
        before, seed = metadata["seed"], self._config.seed
        fraction = self._config.training.train_fraction
        if before == seed or fraction == 1.0:
            return "restore the data"
        return (
            f"training.train_fraction={fraction:g} splits the rows by the seed, which was {before} and is {seed}:"
            f" go on with seed={before}"
        )

    def _judge_again(self, kept_step: int) -> None:
        """Judge the rows that a resumed run keeps, as the run before it did."""
        interval = self._config.training.eval_every_n_steps
        for row in read_rows(self._places.metrics):
            step = row["step"]
            if step <= kept_step:
                self._best.observe(step, row, judged=step in (0, self._max_steps) or _is_due(step, interval))
        if self._best.step:
            self._checkpoints.mark_best(self._best.step)

    def _check_reward(self, metadata: dict[str, Any]) -> None:
        """Tell, or refuse, a reward that is not the checkpoint's."""
        changed = reward_changed_since(metadata, self._metadata)
        if changed and self._config.rewards.on_change == "refuse":
            raise CheckpointError(
                "the reward is not the one that the checkpoint was trained on:\n  "
                + "\n  ".join(changed)
                + "\nRestore it, or go on with rewards.on_change=warn."
            )
        for line in changed:
            _LOGGER.warning("the reward has changed since the checkpoint was written: %s", line)

    def _save(self, step: int) -> None:
        if step > self._saved_step:
            self._recorder.flush()
            data = self._material.batches.fingerprint(step)
            metadata = {**self._metadata, "data": data, "mixture": self._mixture.state_dict()}
            self._checkpoints.save(step, read_state(self._material.learner), metadata)
            self._saved_step = step

    def _stop_if_asked(self, step: int) -> None:
        number = self._stop.signal_number
        if number is not None and step < self._max_steps:
            self._save(step)
            raise Interrupted(f"stopped by signal {number} after step {step}. {self._how_to_resume(step)}", number)

    def _stop_not_finite(self, step: int, learned: Learned) -> None:
        # Weights that no update of this step reached are those of the step before.
        reached = step if learned.updates_applied else step - 1
        self._save(reached)
        raise NonFiniteUpdateError(
            f"step {step}: the loss is {learned.loss} and the gradient norm {learned.grad_norm};"
            f" the weights were not updated with it. Lower optimizer.learning_rate, set model.dtype=float32, or look"
            f" for extreme rewards. {self._how_to_resume(reached)}"
        )

    def _how_to_resume(self, step: int) -> str:
        if step == 0:
            return "No step was completed, so there is nothing to resume."
        return f"The checkpoint of step {step} is saved; go on with:\n  {resume_command(self._places.root)}"

    def _log_scores(self, step: int, result: StepResult) -> None:
        training = self._config.training
        if training.log_rewards or training.log_level == "debug":
            log = logging.getLogger("agent_tunix.rewards")
            for sample, score, advantage in zip(result.samples, result.scores, result.advantages, strict=True):
                log.info(
                    "step %d %s total=%s advantage=%.3f components=%s response=%r",
                    step,
                    sample.rollout_id,
                    score.value,
                    advantage,
                    dict(score.components),
                    sample.response,
                )
                log.debug("%s: %s: %s", sample.rollout_id, score.outcome, score.detail)

    def _list_places(self) -> dict[str, Path | str]:
        places: dict[str, Path | str] = {
            "metrics": self._places.metrics,
            "log": self._places.log,
            "checkpoints": self._places.checkpoints,
        }
        if self._config.tracking.tensorboard:
            places["tensorboard"] = self._places.tensorboard
        if self._places.rollouts.is_dir():
            places["rollouts"] = self._places.rollouts
        return places | self._watching.summary()


def _name_ranges(steps: list[int]) -> str:
    """Rising whole numbers with runs drawn together: `0, 3 to 7`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][-1] == step - 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _is_due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
