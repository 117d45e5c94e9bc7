"""A training run, from top to bottom: open, load, build, take the steps of GRPO, report.

`opening.py` claims the run's directory, `components.py` builds its parts, `session.py` handles everything around the
steps, `checkpointing.py` its checkpoints, and `grpo/step.py` is the algorithm.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent_tunix.config.schema import TrainingConfig
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.engines.opening import open_engines
from agent_tunix.grpo.step import StepResult
from agent_tunix.runs.environment_setup import open_environments
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.reporter import scoring_settings, to_stored
from agent_tunix.runs.weights.judge_models import local_judges
from agent_tunix.tracking.callbacks import Callback
from agent_tunix.training.components import build_components, make_trainer
from agent_tunix.training.metrics import StepMetrics, scores_table
from agent_tunix.training.opening import open_run
from agent_tunix.training.resuming import GRPO
from agent_tunix.training.score_sharing import share_scoring, shared_correct, shared_rewards
from agent_tunix.training.session import RunSession, StepOutcome, Summary
from agent_tunix.training.warm_up import warm_up

_LOGGER = logging.getLogger("agent_tunix.run")


def train(
    validated: ValidatedConfig, root: Path, overrides: Sequence[str] = (), callbacks: Sequence[Callback] = ()
) -> Summary:
    """Run GRPO as configured.

    Args:
        validated: A configuration that passed `preflight`, and its reward.
        root: Directory of the run.
        overrides: Overrides of the command line, which are stored with the outcome of the run.
        callbacks: Code of the user, called around the steps.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: The run cannot load or continue; the message says
            what to do.
        RewardFailureRateError, NonFiniteUpdateError, EngineError, Interrupted: The run stopped early; a checkpoint was
            saved.
    """
    with (
        open_run(validated, root, overrides) as opened,
        # Workers serve the mixture from here on. They start while the model loads.
        shared_rewards(validated.mixture, validated.config.rewards, opened.processes) as mixture,
        shared_correct(validated.correct, validated.config.rewards, opened.processes) as correct,
        open_environments(validated.config, Path.cwd()) as environments,
        open_engines(opened.validated.config, opened.paths.root, opened.processes) as engines,
    ):
        _LOGGER.info("reward: %s", mixture.describe())
        judges = local_judges(mixture, validated.correct)
        components = build_components(
            opened.validated.config, environments=environments, judges=judges, engines=engines
        )
        config = components.config
        score = share_scoring(mixture, config.rewards, opened.processes)
        trainer = make_trainer(components, mixture, score)
        settled = replace(opened.validated, config=config, mixture=mixture)
        session = RunSession(GRPO, settled, opened, components, score, correct, callbacks)
        metrics, scoring = StepMetrics(mixture, config), scoring_settings(config, session.fingerprint)

        def more_prompts(step: int, number: int) -> PromptBatch:
            """Return the prompts of a further round of dynamic sampling: those of the steps that follow.

            After the last step come the prompts of the first. Prompts therefore depend only on the step's number and
            follow the order of the data. Other steps do not change: a prompt that was sampled early is sampled again at
            its own step.
            """
            return session.batch((step - 1 + number) % session.max_steps + 1)

        ahead = components.ahead
        with session.open(warm_up(components)), contextlib.closing(ahead) if ahead else contextlib.nullcontext():
            for step in session.steps():
                with session.learning():
                    started = time.perf_counter()
                    result = trainer.take_step(step, session.batch(step), functools.partial(more_prompts, step))
                    if opened.processes.is_first:
                        _log_scores(step, result, config.training)
                    row = metrics.row(step, result, session.learning_rate(), time.perf_counter() - started)
                    if engines is not None:
                        row |= engines.metrics()
                    row |= session.reporter.store(functools.partial(to_stored, step, result, scoring))
                session.finish_step(step, StepOutcome.of_grpo(row, result))
        return session.conclude()


def _log_scores(step: int, result: StepResult, training: TrainingConfig) -> None:
    if np.isnan(result.totals).all():
        _LOGGER.warning("step %d: no completion was scored, so no reward trains: %s", step, result.scores[0].detail)
    if training.log_rewards or training.log_level == "debug":
        log = logging.getLogger("agent_tunix.rewards")
        log.info("step %d\n%s", step, scores_table(result))
        for sample, score in zip(result.samples, result.scores, strict=True):
            log.debug("%s: %s: %s", sample.rollout_id, score.outcome, score.detail)
