"""Whether a batch function takes strings or messages, found out in a worker before training.

There it can hang, exit, exhaust its memory, or count its calls, and nobody notices.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from agent_tunix.rewards.conventions.trl import FormTrial, TrlReward
from agent_tunix.rewards.execution.executor import Executor, Job
from agent_tunix.rewards.execution.local import LocalExecutor
from agent_tunix.rewards.execution.recipes import is_uploaded
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.uploads import make_uploads_executor
from agent_tunix.rewards.sample import Sample

TIMEOUT_S = 60.0


def settle_completions(
    rewards: Iterable[object],
    sample: Sample,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = 2048,
    allow_unsandboxed: bool = False,
) -> None:
    """Decide for each batch function that can still be given either, and say which it is.

    Args:
        rewards: Of any convention; those that are not asked stay as they are.
        sample: What they are called with.
        timeout_s: A function that has not returned by then decided nothing, and gets strings; as much again is allowed
            for loading it.
        memory_mb: What it may allocate beyond what it holds once it is loaded.
        allow_unsandboxed: Whether uploaded ones may be tried without isolation where there is none.

    Raises:
        SandboxUnavailableError: An uploaded one cannot be isolated here, and may not be tried otherwise.
    """
    open_ones = [reward for reward in rewards if isinstance(reward, TrlReward) and reward.completions == "auto"]
    for reward in open_ones:
        if reward.recipe is None:
            reward.settle(reward.probe(sample))
    settings = ExecutionSettings(
        "process",
        timeout_s,
        memory_mb,
        num_workers=1,
        start_timeout_s=timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )
    own = [reward for reward in open_ones if reward.recipe is not None and not is_uploaded(reward.recipe)]
    if own:
        with LocalExecutor(settings) as executor:
            for reward in own:
                choose_completions(reward, sample, executor)
    for reward in open_ones:
        if is_uploaded(reward.recipe):  # each in workers of its own
            with make_uploads_executor(settings) as executor:
                choose_completions(reward, sample, executor)


def choose_completions(reward: TrlReward, sample: Sample, executor: Executor) -> None:
    """Decide for one batch function, tried in these workers."""
    reward.settle(reward.choose(partial(_try, executor, reward, sample)))


def _try(executor: Executor, reward: TrlReward, sample: Sample, completions: str) -> FormTrial:
    """What comes of it in a worker."""
    assert reward.recipe is not None
    recipe = replace(reward.recipe, completions=completions)
    (score,) = executor.submit(Job(recipe, [sample], [(0,)], reward.is_async)).result()
    return FormTrial.of(score)
