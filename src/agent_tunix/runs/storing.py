"""Conversion of a step's result into the form that is stored."""

from agent_tunix.config.schema import Config
from agent_tunix.grpo.step import StepResult
from agent_tunix.rewards import Fingerprint
from agent_tunix.tracking.rollouts import ScoringSettings, StoredStep


def scoring_settings(config: Config, reward: Fingerprint) -> ScoringSettings:
    """Return the settings that determine the run's totals and advantages."""
    return ScoringSettings(
        num_generations=config.grpo.num_generations,
        advantage_scaling=config.grpo.advantage_scaling,
        on_failure=reward.on_failure,
        fingerprint=reward.short,
    )


def to_stored(step: int, result: StepResult, settings: ScoringSettings) -> StoredStep:
    """Return the completions of a step in the form that is stored."""
    return StoredStep(
        step=step,
        samples=result.samples,
        scores=result.scores,
        advantages=result.advantages,
        logprobs=result.completions.logps.sum(axis=1),
        settings=settings,
        groups_in_step=len(result.samples) // settings.num_generations,
    )
