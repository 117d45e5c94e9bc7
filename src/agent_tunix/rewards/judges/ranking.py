"""Scores in [0, 1] from comparisons of pairs. A comparison gives the pair's first member 1, 0.5 or 0 points."""

from collections.abc import Mapping

Pair = tuple[int, int]

_MOST_STEPS = 1_000
_CLOSE_ENOUGH = 1e-10


def win_rates(num_members: int, results: Mapping[Pair, float]) -> list[float]:
    """Return for each member the share of its comparisons that it won. A tie counts half. Without comparisons: 0.5."""
    won, compared = _tally(num_members, results)
    return [points / sum(games) if sum(games) else 0.5 for points, games in zip(won, compared, strict=True)]


def bradley_terry(num_members: int, results: Mapping[Pair, float]) -> list[float]:
    """Return the chance of each member to win against an average one, under the Bradley–Terry model.

    P(i beats j) = p_i / (p_i + p_j). Each member also has one tie against an imaginary member of strength 1, which
    keeps the strengths finite. The value is p_i / (p_i + 1). The strengths are found by minorisation–maximisation:
    p_i ← w_i / Σ_j n_ij / (p_i + p_j). (Hunter, MM algorithms for generalized Bradley–Terry models, 2004.)
    """
    won, compared = _tally(num_members, results)
    strengths = [1.0] * num_members
    for _ in range(_MOST_STEPS):
        previous = list(strengths)
        for i in range(num_members):
            games = sum(n / (strengths[i] + strengths[j]) for j, n in enumerate(compared[i]) if n)
            strengths[i] = (won[i] + 0.5) / (games + 1 / (strengths[i] + 1))
        if max((abs(p - q) for p, q in zip(strengths, previous, strict=True)), default=0.0) < _CLOSE_ENOUGH:
            break
    return [strength / (strength + 1) for strength in strengths]


def _tally(num_members: int, results: Mapping[Pair, float]) -> tuple[list[float], list[list[int]]]:
    """Return the points of each member and the number of comparisons of each pair."""
    won = [0.0] * num_members
    compared = [[0] * num_members for _ in range(num_members)]
    for (i, j), points in results.items():
        won[i] += points
        won[j] += 1 - points
        compared[i][j] += 1
        compared[j][i] += 1
    return won, compared


def choose_pairs(order: list[int], opponents: int | None) -> list[Pair]:
    """Return the pairs to compare: all, or each member with a number of others.

    Args:
        order: Members in the order of a ring. Each is compared with its nearest neighbours in the ring.
        opponents: Number of others per member, rounded up to an even number; None: all.
    """
    n = len(order)
    reach = n // 2 if opponents is None else min(n // 2, (opponents + 1) // 2)
    pairs = {
        (min(one, other), max(one, other))
        for position, one in enumerate(order)
        for distance in range(1, reach + 1)
        if one != (other := order[(position + distance) % n])
    }
    return sorted(pairs)
