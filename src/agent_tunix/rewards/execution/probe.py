"""Trials of rewards before training, in a worker. They find the form of completions, and rewards that always fail.

In a worker the function can hang, exit, exhaust its memory or count its calls without effect on the run. Trial calls
have the time limit of other calls, `rewards.timeout_s`.
"""

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from agent_tunix.errors import RewardError
from agent_tunix.rewards.conventions import Convention
from agent_tunix.rewards.conventions.completion_form import TRIALS, FormTrial, choose_form, made_up, with_made_up_tokens
from agent_tunix.rewards.conventions.components import lacks_entry
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.execution.calls import Executor, Job
from agent_tunix.rewards.execution.local import LocalExecutor, make_sandboxed_executor
from agent_tunix.rewards.execution.recipes import is_uploaded
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.sample import Outcome, Sample, Score

logger = logging.getLogger("agent_tunix.rewards")

TIMEOUT_S = 60.0
# Seconds after which a trial that still runs is announced.
_QUIET_S = 2.0


def settle_completions(
    rewards: Iterable[object],
    sample: Sample,
    *,
    timeout_s: float = TIMEOUT_S,
    start_timeout_s: float = TIMEOUT_S,
    memory_mb: int = 2048,
    allow_unsandboxed: bool = False,
) -> None:
    """Decide the form of completions for each reward that is still open, and log it.

    Args:
        rewards: Rewards of any convention; those without an open form stay unchanged.
        sample: Sample to call them with.
        timeout_s: Time limit of a call in a worker. A function that exceeds it gets its library's form, or strings.
        start_timeout_s: Time limit of loading a function in a worker.
        memory_mb: Memory that a function may allocate beyond what it holds after loading.
        allow_unsandboxed: True if uploaded functions may run where they cannot be isolated.

    Raises:
        RewardError: A function takes both forms and scores them differently.
        SandboxUnavailableError: An uploaded function cannot be isolated here and may not run otherwise.
    """
    open_ones = [reward for reward in rewards if isinstance(reward, FormedConvention) and reward.is_open]
    for reward in open_ones:
        if reward.recipe is None:
            with announce_if_slow(_trial_of(reward, None)):
                reward.settle(reward.probe(sample))
    settings = ExecutionSettings(
        "process",
        timeout_s,
        memory_mb,
        num_workers=1,
        start_timeout_s=start_timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )
    own = [reward for reward in open_ones if reward.recipe is not None and not is_uploaded(reward.recipe)]
    if own:
        with LocalExecutor(settings) as executor:
            for reward in own:
                with announce_if_slow(_trial_of(reward, timeout_s)):
                    choose_completions(reward, sample, executor)
    for reward in open_ones:
        if is_uploaded(reward.recipe):  # each upload gets its own workers
            with announce_if_slow(_trial_of(reward, timeout_s)), make_sandboxed_executor(settings) as executor:
                choose_completions(reward, sample, executor)


def try_rewards(
    rewards: Iterable[object],
    sample: Sample,
    *,
    timeout_s: float = TIMEOUT_S,
    start_timeout_s: float = TIMEOUT_S,
    memory_mb: int = 2048,
) -> None:
    """Call each reward of the user's own code on made-up completions, and warn of one that fails on all of them.

    Args:
        rewards: Rewards of any convention. Built-ins, judges, uploads and rewards without a recipe are not called.
        sample: A sample of the data.
        timeout_s: Time limit of a call for each completion.
        start_timeout_s: Time limit of loading a reward in the worker.
        memory_mb: Memory that a reward may allocate beyond what it holds after loading.

    Raises:
        RewardError: A reward returns a dict without the entry that is the reward (`rewards.reward_key`).
    """
    own = [
        reward
        for reward in rewards
        if isinstance(reward, Convention)
        and reward.recipe is not None
        and not reward.is_builtin
        and not is_uploaded(reward.recipe)
    ]
    if not own:
        return
    settings = ExecutionSettings("process", timeout_s, memory_mb, num_workers=1, start_timeout_s=start_timeout_s)
    with LocalExecutor(settings) as executor:
        for reward in own:
            with announce_if_slow(_trial_of(reward, timeout_s)):
                _try_out(reward, [with_made_up_tokens(sample), *made_up(sample)], executor)


@contextlib.contextmanager
def announce_if_slow(text: str) -> Iterator[None]:
    """Log a text if the block takes longer than a moment."""
    timer = threading.Timer(_QUIET_S, logger.warning, ("%s", text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _trial_of(reward: Convention, limit_s: float | None) -> str:
    limit = "without a time limit" if limit_s is None else f"with at most {limit_s:g} s a call (rewards.timeout_s)"
    return f"trying reward {reward.name!r} on made-up completions, {limit}: {reward.describe()}"


def _try_out(reward: Convention, samples: Sequence[Sample], executor: Executor) -> None:
    """Call a reward until it scores, and warn if it never does."""
    assert reward.recipe is not None
    batches = [samples] if reward.needs_group or reward.needs_batch else [[one] for one in samples]
    failed: Score | None = None
    for batch in batches:
        scores = executor.submit(Job(reward.recipe, batch, [tuple(range(len(batch)))], reward.is_async)).result()
        if any(score.outcome not in (Outcome.ERROR, Outcome.TIMEOUT) for score in scores):
            return
        failed = scores[0]
        if lacks_entry(failed):
            raise RewardError(
                f"reward {reward.name!r} {failed.detail}; set rewards.reward_key", code="invalid_reward_signature"
            )
        if failed.outcome is Outcome.TIMEOUT:
            break
    if failed is not None:
        logger.warning(
            "reward %r fails on all %d made-up completions, so that training may have no score: %s (%s); see it with "
            "`agent-tunix rewards try`",
            reward.name,
            len(samples),
            failed.detail,
            reward.describe(),
        )


def choose_completions(reward: FormedConvention, sample: Sample, executor: Executor) -> None:
    """Find out by trial calls in workers if a batch function takes completions as text or messages, and settle it."""
    reward.settle(choose_form(reward.name, partial(_try, executor, reward), sample, reward.native_form))


def _try(executor: Executor, reward: FormedConvention, form: str, sample: Sample) -> FormTrial:
    """Call the function in a worker and return the result."""
    assert reward.recipe is not None
    recipe = replace(reward.recipe, completions=TRIALS[form])
    (score,) = executor.submit(Job(recipe, [sample], [(0,)], reward.is_async)).result()
    return FormTrial.of(score)
