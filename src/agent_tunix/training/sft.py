"""A supervised start, from top to bottom: a run of `session.py` whose steps learn from target texts.

`agent-tunix sft` trains on the text that should follow each prompt, with the same rows, prompts, model, optimizer and
schedule as GRPO. Checkpoints, resuming, evaluations, metrics and trackers are those of every run. A run of GRPO starts
with the trained weights if `training.init_checkpoint=RUN` is set.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.reward_setup import OWN_REWARD
from agent_tunix.tracking.callbacks import Callback
from agent_tunix.training.components import build_components
from agent_tunix.training.opening import open_run
from agent_tunix.training.score_sharing import share_scoring, shared_correct, shared_rewards
from agent_tunix.training.session import RunSession, StepOutcome, Summary
from agent_tunix.training.supervised import SupervisedResult, SupervisedTrainer

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
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_run(validated, root, overrides))
        _LOGGER.info("a supervised start; no reward trains")
        config = opened.validated.config
        if config.data.sampling == "pass_rate":
            _LOGGER.info("data.sampling=pass_rate has no effect, because a supervised start samples nothing")
            config = replace(config, data=replace(config.data, sampling="uniform"))
        components = build_components(config, num_rows=micro_batch_size(config))
        trainer = SupervisedTrainer(components.config, components.sampler, components.updater)
        score, rewards = None, components.config.rewards
        settings = components.config.evaluation
        if settings.with_rewards or settings.correct == OWN_REWARD:
            mixture = stack.enter_context(shared_rewards(validated.mixture, rewards, opened.processes))
            score = share_scoring(mixture, rewards, opened.processes)
        correct = stack.enter_context(shared_correct(validated.correct, rewards, opened.processes))
        settled = replace(opened.validated, config=components.config)
        session = RunSession("sft", settled, opened, components, score, correct, callbacks)
        warned = False
        with session.open():
            for step in session.steps():
                with session.learning():
                    result = trainer.take_step(step, session.batch(step))
                if result.left_out and not warned:
                    warned = True
                    _LOGGER.warning(
                        "step %d: %d rows have no usable target and are skipped, as later ones may be (sft/left_out "
                        "counts them): %s",
                        step,
                        len(result.left_out),
                        result.left_out[0],
                    )
                row = _metrics(result, session.learning_rate())
                outcome = StepOutcome(row, result.finite, result.updates_applied, result.loss, result.grad_norm)
                session.finish_step(step, outcome)
        return session.conclude()


def _metrics(result: SupervisedResult, learning_rate: float) -> dict[str, Any]:
    return {
        "sft/loss": result.loss,
        "sft/token_accuracy": result.token_accuracy,
        "sft/num_tokens": result.num_tokens,
        "sft/left_out": len(result.left_out),
        "policy/grad_norm": result.grad_norm,
        **{f"policy/{name}": value for name, value in result.norms.items()},
        "policy/learning_rate": learning_rate,
        "policy/updates": result.updates_applied,
        "time/step_s": result.seconds,
        "throughput/tokens_per_s": result.num_tokens / result.seconds,
    }
