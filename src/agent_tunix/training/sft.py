"""Runs that learn from rows, from top to bottom: a supervised start, and preference tuning.

They are runs of `session.py` whose steps learn from target texts (`agent-tunix sft`) or from pairs of responses
(`agent-tunix prefer`), with the same rows, prompts, model, optimizer and schedule as GRPO. Checkpoints, resuming,
evaluations, metrics and trackers are those of every run. Another run starts with the trained weights if
`model.from_run=RUN` is set.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.data_sets import pass_rate_key
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.reward_setup import OWN_REWARD
from agent_tunix.runs.weights.judge_models import local_judges
from agent_tunix.tracking.callbacks import Callback
from agent_tunix.training.components import TrainingComponents, build_components
from agent_tunix.training.opening import open_run
from agent_tunix.training.preferences.from_rollouts import describe_pairs
from agent_tunix.training.preferences.objective import PreferenceObjective
from agent_tunix.training.score_sharing import share_scoring, shared_correct, shared_rewards
from agent_tunix.training.session import RunSession, StepOutcome, Summary
from agent_tunix.training.supervised import Objective, SupervisedResult, SupervisedTrainer, TargetObjective

_LOGGER = logging.getLogger("agent_tunix.run")


def train_supervised(
    validated: ValidatedConfig, root: Path, overrides: Sequence[str] = (), callbacks: Sequence[Callback] = ()
) -> Summary:
    """Run a supervised start as configured.

    Args:
        validated: A configuration that passed `preflight` and `check_supervised`.
        root: Directory of the run.
        overrides: Overrides of the command line, which are stored with the outcome of the run.
        callbacks: Code of the user, called around the steps.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: The run cannot load or continue; the message says
            what to do.
        NonFiniteUpdateError, Interrupted: The run stopped early; a checkpoint was saved.
    """

    def objective(parts: TrainingComponents) -> Objective:
        _LOGGER.info("a supervised start; no reward trains")
        return TargetObjective(parts.config, parts.sampler)

    return _train_on_rows(validated, root, overrides, callbacks, objective)


def train_preferences(
    validated: ValidatedConfig, root: Path, overrides: Sequence[str] = (), callbacks: Sequence[Callback] = ()
) -> Summary:
    """Run preference tuning as configured, with a configuration that passed `check_preferences`.

    The arguments and errors are those of `train_supervised`.
    """

    def objective(parts: TrainingComponents) -> Objective:
        prefer = parts.config.prefer
        against = "no reference policy" if parts.reference is None else "the policy before training as reference"
        _LOGGER.info("preference tuning by %s, with %s; no reward trains", prefer.loss, against)
        if prefer.from_rollouts is not None:
            _LOGGER.info("%s", describe_pairs(root))
        return PreferenceObjective(parts.config, parts.sampler, parts.reference)

    return _train_on_rows(validated, root, overrides, callbacks, objective, responses_per_row=2)


def _train_on_rows(
    validated: ValidatedConfig,
    root: Path,
    overrides: Sequence[str],
    callbacks: Sequence[Callback],
    make_objective: Callable[[TrainingComponents], Objective],
    *,
    responses_per_row: int = 1,
) -> Summary:
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_run(validated, root, overrides))
        config = opened.validated.config
        if key := pass_rate_key(config.data):
            _LOGGER.info("%s=pass_rate has no effect, because this run samples nothing", key)
            config = replace(config, data=replace(config.data, sampling="uniform", set_shares="fixed"))
        settings, rewards = config.evaluation, config.rewards
        scores = settings.with_rewards or settings.correct == OWN_REWARD
        judges = local_judges(validated.mixture if scores else None, validated.correct)
        components = build_components(config, num_rows=micro_batch_size(config) * responses_per_row, judges=judges)
        objective = make_objective(components)
        trainer = SupervisedTrainer(
            components.config, components.sampler, components.updater, objective, components.held_out
        )
        score = None
        if scores:
            mixture = stack.enter_context(shared_rewards(validated.mixture, rewards, opened.processes))
            score = share_scoring(mixture, rewards, opened.processes)
        correct = stack.enter_context(shared_correct(validated.correct, rewards, opened.processes))
        settled = replace(opened.validated, config=components.config)
        session = RunSession(objective.name, settled, opened, components, score, correct, callbacks, trainer.evaluate)
        warned = False
        with session.open():
            for step in session.steps():
                with session.learning():
                    result = trainer.take_step(step, session.batch(step))
                if result.left_out and not warned:
                    warned = True
                    _LOGGER.warning(
                        "step %d: %d rows cannot be used and are skipped, as later ones may be (%s/left_out counts "
                        "them): %s",
                        step,
                        len(result.left_out),
                        objective.name,
                        result.left_out[0],
                    )
                row = _metrics(objective.name, result, session.learning_rate())
                outcome = StepOutcome(row, result.finite, result.updates_applied, result.loss, result.grad_norm)
                session.finish_step(step, outcome)
        return session.conclude()


def _metrics(name: str, result: SupervisedResult, learning_rate: float) -> dict[str, Any]:
    return {
        **{f"{name}/{leaf}": value for leaf, value in result.figures.items()},
        f"{name}/num_tokens": result.num_tokens,
        f"{name}/left_out": len(result.left_out),
        "policy/grad_norm": result.grad_norm,
        **{f"policy/{norm}": value for norm, value in result.norms.items()},
        "policy/learning_rate": learning_rate,
        "policy/updates": result.updates_applied,
        "time/step_s": result.seconds,
        "throughput/tokens_per_s": result.num_tokens / result.seconds,
    }
