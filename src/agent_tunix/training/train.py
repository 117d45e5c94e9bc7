"""A training run, from top to bottom: open, load, build, and take the steps of GRPO.

`opening.py` claims the directory, `session.py` resumes, takes the steps, evaluates and reports, and `grpo/step.py` is
the algorithm.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import DataError
from agent_tunix.grpo.step import StepResult
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.storing import scoring_settings, to_stored
from agent_tunix.startup.timeline import spend
from agent_tunix.training.components import TrainingComponents, build_components, make_trainer
from agent_tunix.training.metrics import StepMetrics
from agent_tunix.training.opening import OpenedRun, open_run
from agent_tunix.training.resuming import GRPO, check_reward
from agent_tunix.training.score_sharing import share_scoring, shared_rewards
from agent_tunix.training.session import RunSession, StepOutcome, Summary
from agent_tunix.training.warm_up import warm_up

_LOGGER = logging.getLogger("agent_tunix.run")


def train(checked: ValidatedConfig, root: Path, overrides: Sequence[str] = ()) -> Summary:
    """Run GRPO as configured.

    Args:
        checked: A configuration that passed `preflight`, and its reward.
        root: Directory of the run.
        overrides: Overrides of the command line; kept beside how the run ended.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: What was required, what arrived and what to do.
        RewardFailureRateError, NonFiniteUpdateError, Interrupted: The run stopped early; a checkpoint was saved.
    """
    with (
        open_run(checked, root, overrides) as opened,
        shared_rewards(checked.mixture, checked.config.rewards, opened.processes) as mixture,
    ):
        # From here on, workers serve the mixture; they start while the model loads.
        checked = replace(opened.checked, mixture=mixture)
        _LOGGER.info("reward: %s", checked.mixture.describe())
        components = build_components(checked.config)
        return GrpoSession(replace(checked, config=components.config), opened, components).complete()


class GrpoSession(RunSession):
    """The session of a run by GRPO."""

    method = GRPO

    def __init__(self, checked: ValidatedConfig, opened: OpenedRun, components: TrainingComponents) -> None:
        """Build the trainer."""
        super().__init__(checked, opened, components)
        score = share_scoring(checked.mixture, checked.config.rewards, opened.processes)
        self._trainer = make_trainer(components, checked.mixture, score)
        self._scoring = scoring_settings(checked.config, self._fingerprint)
        self._metrics = StepMetrics(checked.mixture, checked.config)

    def _prepare(self) -> contextlib.AbstractContextManager[None]:
        with spend("tracing"), contextlib.suppress(DataError):  # the first step reports it
            return warm_up(self._components, self._components.batches.batch(1))
        return contextlib.nullcontext()

    def _learn(self, step: int) -> StepOutcome:
        """Take a step of GRPO."""
        started = time.perf_counter()
        result = self._trainer.take_step(step, self._batch(step), lambda number: self._more_prompts(step, number))
        if self._processes.is_first:
            self._log_scores(step, result)
        if all(score.value is None for score in result.scores):
            _LOGGER.warning(
                "step %d: no completion was scored, so nothing was learned: %s", step, result.scores[0].detail
            )
        seconds = time.perf_counter() - started
        row = self._metrics.row(step, result, self._learning_rate(), seconds)
        row |= self._reporter.store(lambda: to_stored(step, result, self._scoring))
        loss, grad_norm = result.policy["loss"], result.policy["grad_norm"]
        return StepOutcome(row, result.finite, result.updates_applied, loss, grad_norm, result)

    def _more_prompts(self, step: int, number: int) -> PromptBatch:
        """The prompts of a further round of dynamic sampling: those of the steps that follow, past the last the first.

        So they follow from the step's number, as its own prompts do, keep to the order of the data, and leave that of
        the other steps as it is: a prompt that was sampled early is sampled again at its own step.
        """
        return self._batch((step - 1 + number) % self._max_steps + 1)

    def _check_reward(self, metadata: dict[str, Any]) -> None:
        check_reward(metadata, self._metadata, self._config)

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
