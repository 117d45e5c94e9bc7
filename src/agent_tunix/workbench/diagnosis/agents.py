"""Detection of agents whose calls do not continue each other's tokens."""

from collections import Counter
from collections.abc import Iterator

from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Row, Window, number
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import forked, most_frequent_difference

FORKED_SHARE = 0.5
"""Share of episodes of several rows from which on most prompts are read and trained more than once."""
FORK_STEPS = 2

# What each cause means, and what to do about it.
_REMEDIES = {
    "dropped": "prompts leave out a part of earlier replies, as chat templates do with thoughts; set a"
    " prompt.chat_template that keeps them, and send back each message as it was returned",
    "retokenised": "earlier replies are sent back as other tokens of the same text; send back each message as it was"
    " returned, or token ids",
    "rewritten": "the agent changes earlier turns, such as a time in the system prompt or results that it shortens;"
    " append to the conversation instead",
    "branch": "calls branch off a common beginning; that is right for parallel calls, but the prompt of each branch is"
    " read and trained again",
    "new": "calls share no beginning, as with summaries or several conversations, so each reads and trains a whole"
    " prompt",
}
# Agents may do this on purpose.
_INTENDED = ("branch", "new")


class AgentForks(Detector):
    """Detector of agents whose episodes are mostly several rows of tokens."""

    names = ("agent_forks",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._share = Window(FORK_STEPS)
        self._causes: Counter[str] = Counter()

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        share = number(row, "agent/forked_share")
        if share is None or step == 0:
            return
        self._share.add(share)
        self._causes.update({cause: int(number(row, f"agent/fork_causes/{cause}") or 0) for cause in _REMEDIES})
        if not self._share.is_full or self._share.mean < FORKED_SHARE:
            return
        # A cause that can be removed is worth naming before one that may be intended.
        cause = max(_REMEDIES, key=lambda one: (self._causes[one] > 0 and one not in _INTENDED, self._causes[one]))
        yield Detection(
            "agent_forks",
            Severity.INFO if cause in _INTENDED else Severity.WARNING,
            self._share.mean,
            f"{self._share.mean:.0%} of the episodes are several rows of tokens, most often because {_REMEDIES[cause]}",
            evidence={
                "agent/forked_share": self._share.mean,
                f"agent/fork_causes/{cause} so far": float(self._causes[cause]),
                "agent/rows_mean": number(row, "agent/rows_mean") or 0.0,
            },
            pick=forked,
            tell=most_frequent_difference,
        )
