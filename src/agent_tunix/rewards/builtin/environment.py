"""The rewards that environments and agents give their own episodes."""

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


def agent_reward(response: str, episode: EpisodeSummary | None = None) -> Score | None:
    """Return what the agent of the episode returned: a number, or a dict of components. Range [-inf, inf].

    It does not apply to a completion without an agent.

    >>> get_reward_function("agent")("It is 7") is None
    True
    """
    if episode is not None and episode.score is None:
        return Score.failed(
            Outcome.ERROR,
            "the agent returned nothing; let it return a number, or use another training.reward_function",
        )
    return environment_reward(response, episode)
