"""Faults between a judge and its endpoint. A judge turns each into the outcome of a score and raises none."""

from agent_tunix.errors import RewardError
from agent_tunix.rewards.sample import Outcome


class JudgeFault(RewardError):
    """Error for a question that got no verdict.

    Attributes:
        outcome: Outcome of the score.
        may_be_billed: True if the endpoint may charge for the request, although its answer did not arrive.
    """

    code = "judge_failed"
    outcome = Outcome.ERROR
    may_be_billed = False


class TransientFault(JudgeFault):
    """Error that may not recur: a rate limit, a server error, a lost connection.

    `retry_after_s` is the wait that the endpoint asked for, or None.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, may_be_billed: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.may_be_billed = may_be_billed


class UnsupportedParameter(JudgeFault):
    """Error for an optional parameter that the endpoint refused.

    `parameter` is `response_format`, `seed`, `temperature` or `max_tokens`.
    """

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class SlowEndpoint(JudgeFault):
    """Error for a request that took longer than `timeout_s`."""

    outcome = Outcome.TIMEOUT
    may_be_billed = True


class BudgetSpent(JudgeFault):
    """Error for a request beyond `max_requests` or `max_cost`."""


class MalformedVerdict(JudgeFault):
    """Error for a reply that is not a verdict."""
