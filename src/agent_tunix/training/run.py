"""A training run, from top to bottom: open, load, build, and take the steps of GRPO.

`opening.py` claims the directory, `steps.py` resumes, takes the steps, evaluates and reports; here is what a step of
GRPO learns: sample, score, update.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.errors import DataError
from agent_tunix.policy.foreseen import Foreseen
from agent_tunix.training.ahead import Ahead
from agent_tunix.training.building import Material, build_material, training_sampling
from agent_tunix.training.evaluation import begin_evaluation
from agent_tunix.training.learner import PromptBatch, StepResult, StepSettings
from agent_tunix.training.metrics import StepMetrics
from agent_tunix.training.opening import Opened, open_run
from agent_tunix.training.preflight import Checked
from agent_tunix.training.processes.sharing import shared_rewards, why_first_scores
from agent_tunix.training.resuming import GRPO, check_reward
from agent_tunix.training.rollout import Rollout
from agent_tunix.training.steps import Learned, Run, Summary
from agent_tunix.training.storing import scoring_settings, to_stored
from agent_tunix.training.timeline import spend

_LOGGER = logging.getLogger("agent_tunix.run")


def train(checked: Checked, root: Path, overrides: Sequence[str] = (), foreseen: Foreseen | None = None) -> Summary:
    """Run GRPO as configured.

    Args:
        checked: A configuration that passed `preflight`, and its reward.
        root: The run's directory.
        overrides: What was asked for on the command line; kept beside how the run ended.
        foreseen: Programs that are being loaded.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: What was required, what arrived and what to do.
        RewardFailureRateError, NonFiniteUpdateError, Interrupted: The run stopped early; a checkpoint was saved.
    """
    with (
        open_run(checked, root, overrides) as opened,
        shared_rewards(checked.mixture, checked.config.rewards, opened.processes) as mixture,
    ):
        # From here on the mixture is the one that the workers serve; they start while the model loads.
        checked = replace(opened.checked, mixture=mixture)
        _LOGGER.info("reward: %s", checked.mixture.describe())
        with contextlib.ExitStack() as after, Ahead() as ahead:
            material = build_material(checked.config, checked.mixture, ahead=ahead, foreseen=foreseen)
            after.callback(material.learner.programs.flush)
            after.callback(material.learner.rl_cluster.close)
            return GrpoRun(replace(checked, config=material.config), opened, material).complete()


class GrpoRun(Run):
    """The steps of GRPO."""

    method = GRPO

    def __init__(self, checked: Checked, opened: Opened, material: Material) -> None:
        """Take what a step samples and scores by."""
        super().__init__(checked, opened, material)
        whole = why_first_scores(checked.mixture, checked.config.rewards.execution) is not None
        material.learner.reward_manager.share(opened.processes, divided=not whole)
        self._settings = StepSettings(checked.config, training_sampling(checked.config), self._max_steps)
        self._scoring = scoring_settings(checked.config, self._fingerprint)
        self._metrics = StepMetrics(checked.mixture, checked.config)

    def _prepare(self) -> None:
        material = self._material
        # First what is waited for first; nothing is begun where it was while the learner was built.
        rollout: Rollout = material.learner.rl_cluster.rollout
        begin_evaluation(material.learner.ahead, rollout, material.held_out, self._config, material.mesh)
        with spend("tracing"), contextlib.suppress(DataError):  # which the first step will tell of
            material.learner.compile_ahead(material.batches.batch(1), self._settings)
        if self._processes.count == 1:
            material.learner.ahead.begin("learning rate", lambda: material.learning_rate(0))

    def _learn(self, step: int) -> Learned:
        """Sample, score and update."""
        started = time.perf_counter()
        result = self._material.learner.run_step(
            step, self._batch(step), self._settings, lambda number: self._more_prompts(step, number)
        )
        if self._processes.is_first:
            self._log_scores(step, result)
        if all(score.value is None for score in result.scores):
            _LOGGER.warning(
                "step %d: no completion was scored, so nothing was learned: %s", step, result.scores[0].detail
            )
        seconds = time.perf_counter() - started
        row = self._metrics.row(step, result, self._learning_rate(), seconds)
        row |= self._teller.store(lambda: to_stored(step, result, self._scoring))
        loss, grad_norm = result.policy["loss"], result.policy["grad_norm"]
        return Learned(row, result.finite, result.updates_applied, loss, grad_norm, result)

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
