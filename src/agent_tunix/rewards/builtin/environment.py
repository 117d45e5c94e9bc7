"""The reward that an environment gives its own episodes."""

from agent_tunix.rewards.sample import EpisodeSummary, Outcome, Score


def environment_reward(response: str, episode: EpisodeSummary | None = None) -> Score | None:
    """Return the environment's own score of the episode: `get_reward`, or the sum of its rewards. Range [-inf, inf].

    It does not apply to a completion without an environment.

    >>> get_reward_function("environment")("It is 7") is None
    True
    """
    if episode is None:
        return None
    if episode.score is None:
        return Score.failed(
            Outcome.ERROR,
            "the environment does not score its episodes; give it get_reward or, if it has step, a number as reward,"
            " or use another training.reward_function",
        )
    return episode.score
