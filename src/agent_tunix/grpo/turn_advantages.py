"""Advantages of the tokens of rows: those of their completion, or of the turn in which they were sampled.

A turn of an episode is a run of tokens that the policy sampled, between tokens of the template or of a reply. A turn of
an agent is a call, and may be in any of the episode's rows.
"""

import numpy as np

from agent_tunix.grpo.training_rows import TrainingRows
from agent_tunix.sampling.sampler import Completions


def row_advantages(advantages: np.ndarray, rows: TrainingRows, completions: Completions) -> np.ndarray:
    """Return the [R] or [R, T] advantages of the rows of a step; empty rows have any.

    Args:
        advantages: [N] of completions, or [N, K] of their turns, NaN after the last one of each.
        rows: Rows of the completions.
        completions: The completions.
    """
    if advantages.ndim == 1:
        return np.asarray(advantages[rows.owners])
    of_tokens = np.zeros(rows.tokens.shape, advantages.dtype)
    for row, (mask, turns) in enumerate(_sampled_turns(completions)):
        own = advantages[rows.owners[row]]
        of_tokens[row, mask] = own[np.minimum(turns, np.count_nonzero(~np.isnan(own)) - 1)]
    return of_tokens


def has_advantage(advantages: np.ndarray, rows: TrainingRows) -> bool:
    """Return True if a token that takes part in the loss has an advantage; they are of `row_advantages`."""
    of_rows = advantages[:, None] if advantages.ndim == 1 else advantages
    return bool((rows.mask & (of_rows != 0)).any())


def _sampled_turns(completions: Completions) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each completion and then for each fork, the [T] mask of its sampled tokens and the turn of each."""
    forks = completions.forks
    masks = [*completions.mask, *(() if forks is None else forks.mask)]
    owners = [*range(len(completions.texts)), *(() if forks is None else forks.owners)]
    seen: dict[int, int] = {}
    rows = []
    for mask, owner in zip(masks, owners, strict=True):
        episode = None if completions.episodes is None else completions.episodes[owner]
        if episode is None or episode.agent is None:
            starts = mask & ~np.concatenate([[False], mask[:-1]])
            rows.append((mask, np.cumsum(starts)[mask] - 1))
            continue
        # The main row of an episode stands among the completions, and its other rows are the forks in their order.
        calls, main = episode.agent.calls, episode.agent.main_row
        numbers = [main, *sorted({call.row for call in calls if call.row is not None} - {main})]
        number = numbers[seen.setdefault(owner, 0)]
        seen[owner] += 1
        own = [turn for turn, call in enumerate(calls) if call.row is not None and call.row == number]
        rows.append((mask, np.repeat(np.array(own, np.int64), [calls[turn].sampled for turn in own])))
    return rows
