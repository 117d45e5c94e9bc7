"""Scoring shared by the processes of a run: each process scores a share, and all receive every score.

A share consists of whole groups, so that a reward that compares the completions of a prompt sees all of them. Process 0
scores everything if a reward must see the whole batch, has a budget, slots or a model of its own (a judge, a reward
model), or runs on Ray, whose workers run on all machines already.
"""

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from agent_tunix.config.schema import RewardsConfig
from agent_tunix.distributed.group import Processes
from agent_tunix.rewards import Mixture, Sample, Score
from agent_tunix.rewards.score_data import from_data, tidy, to_data
from agent_tunix.runs.reward_setup import make_reward_runner
from agent_tunix.runs.weights.judge_models import refuse_local_judges

_LOGGER = logging.getLogger("agent_tunix.run")


@contextlib.contextmanager
def shared_rewards(mixture: Mixture, rewards: RewardsConfig, processes: Processes) -> Iterator[Mixture]:
    """Yield the mixture of this process; it has workers if the process scores completions.

    Args:
        mixture: The reward.
        rewards: Execution and limits of rewards.
        processes: Processes of the run.

    Raises:
        ConfigError: The run has several processes and samples the model of a judge.
    """
    refuse_local_judges(mixture, processes.count)
    reason = why_first_scores(mixture, rewards.execution)
    if processes.count > 1:
        description = "process 0 scores all completions: " + reason if reason else "each process scores a share"
        _LOGGER.info("rewards: %s", description)
    if processes.is_first or reason is None:
        with make_reward_runner(mixture, rewards) as runner:
            yield runner.reward
    else:
        yield mixture


@contextlib.contextmanager
def shared_correct(
    mixture: Mixture | None, rewards: RewardsConfig, processes: Processes
) -> Iterator[Callable[[Sequence[Sample]], list[Score]] | None]:
    """Yield the function that scores samples with the reward of `evaluation.correct`; None without such a reward.

    Args:
        mixture: The reward, as `ValidatedConfig.correct`.
        rewards: Execution and limits of rewards.
        processes: Processes of the run.
    """
    if mixture is None:
        yield None
        return
    with shared_rewards(mixture, rewards, processes) as shared:
        _LOGGER.info("evaluation.correct: %s", shared.describe())
        yield share_scoring(shared, rewards, processes)


def why_first_scores(mixture: Mixture, execution: str) -> str | None:
    """Return the reason why one process must score the whole batch; None if each may score a share.

    Args:
        mixture: The reward.
        execution: Value of `rewards.execution`.
    """
    if execution == "ray":
        return "rewards.execution=ray has its own workers"
    for component in mixture.components:
        inner = component.reward
        if isinstance(inner, Mixture):
            if reason := why_first_scores(inner, execution):
                return reason
        elif getattr(inner, "needs_batch", False):
            return f"{component.name} needs the whole batch"
        elif getattr(inner, "limits_itself", False):
            return f"{component.name} has its own limits"
    return None


def share_scoring(
    mixture: Mixture, rewards: RewardsConfig, processes: Processes
) -> Callable[[Sequence[Sample]], list[Score]]:
    """Return the function that scores samples, in all processes or in the first alone."""
    if processes.count == 1:
        return mixture.score
    divided = why_first_scores(mixture, rewards.execution) is None
    return functools.partial(score_together, mixture.score, processes=processes, divided=divided)


def score_together(
    score: Callable[[Sequence[Sample]], list[Score]], samples: Sequence[Sample], processes: Processes, *, divided: bool
) -> list[Score]:
    """Return the scores of all samples, the same in every process.

    Args:
        score: Scores samples in this process.
        samples: Completions of a step, the same in every process. The members of a group are adjacent.
        processes: Processes of the run.
        divided: True if each process scores a share; False if process 0 scores everything.

    Raises:
        AgentTunixError: The reward failed in a process. All processes raise the error of the first such process.
    """
    shares = _divide(samples, processes.count) if divided else [samples, *[samples[:0]] * (processes.count - 1)]
    own = shares[processes.index]
    data_of_shares = processes.each(lambda: [to_data(tidy(one)) for one in score(own)] if own else [])
    return [from_data(data) for share in data_of_shares for data in share]


def _divide(samples: Sequence[Sample], count: int) -> list[Sequence[Sample]]:
    """Return `count` slices of whole groups, as equal in size as possible; some may be empty."""
    groups = [(sample.step, sample.group_id) for sample in samples]
    starts = [place for place, group in enumerate(groups) if place == 0 or groups[place - 1] != group]
    ends = [*starts, len(samples)]
    bounds = [ends[len(starts) * number // count] for number in range(count + 1)]
    return [samples[start:end] for start, end in itertools.pairwise(bounds)]
