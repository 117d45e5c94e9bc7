"""What can go wrong between a judge and its endpoint. None of it leaves a judge: it becomes an outcome."""

from agent_tunix.errors import RewardError
from agent_tunix.rewards.sample import Outcome


class JudgeFault(RewardError):
    """No verdict could be had; the message says why."""

    code = "judge_failed"
    outcome = Outcome.ERROR


class TransientFault(JudgeFault):
    """The endpoint may answer another time: a rate limit, an error of the server, a lost connection.

    Attributes:
        retry_after_s: How long the endpoint asked to wait; None if it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnsupportedParameter(JudgeFault):
    """The endpoint refused a parameter that a verdict can do without.

    Attributes:
        parameter: `response_format`, `seed`, `temperature` or `max_tokens`.
    """

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class SlowEndpoint(JudgeFault):
    """A request took longer than `timeout_s`."""

    outcome = Outcome.TIMEOUT


class BudgetSpent(JudgeFault):
    """`max_requests` or `max_cost` is reached."""

    code = "budget_spent"


class MalformedVerdict(JudgeFault):
    """The model answered with something that is no verdict."""

    code = "malformed_verdict"
