"""Trials of rewards before training, in a worker: whether a function takes strings or messages.

In a worker the function can hang, exit, exhaust its memory or count its calls without effect on the run.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from agent_tunix.rewards.conventions.completion_form import TRIALS, FormTrial, choose_form
from agent_tunix.rewards.conventions.formed import FormedConvention
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
    """Decide the form of completions for each reward that is still open, and log it.

    Args:
        rewards: Rewards of any convention; those without an open form stay unchanged.
        sample: Sample to call them with.
        timeout_s: Time limit of a call, and of loading. A function that exceeds it gets strings.
        memory_mb: Memory that a function may allocate beyond what it holds after loading.
        allow_unsandboxed: True if uploaded functions may run where they cannot be isolated.

    Raises:
        RewardError: A function takes both forms and scores them differently.
        SandboxUnavailableError: An uploaded function cannot be isolated here and may not run otherwise.
    """
    open_ones = [reward for reward in rewards if isinstance(reward, FormedConvention) and reward.is_open]
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
        if is_uploaded(reward.recipe):  # each upload gets its own workers
            with make_uploads_executor(settings) as executor:
                choose_completions(reward, sample, executor)


def choose_completions(reward: FormedConvention, sample: Sample, executor: Executor) -> None:
    """Decide the form of completions of one batch function by calls in these workers."""
    reward.settle(choose_form(reward.name, partial(_try, executor, reward), sample, reward.native_form))


def _try(executor: Executor, reward: FormedConvention, form: str, sample: Sample) -> FormTrial:
    """Call the function in a worker and return the result."""
    assert reward.recipe is not None
    recipe = replace(reward.recipe, completions=TRIALS[form])
    (score,) = executor.submit(Job(recipe, [sample], [(0,)], reward.is_async)).result()
    return FormTrial.of(score)
