"""Detection of a verifier that contradicts itself."""

from collections.abc import Iterator

from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Row, Window, number
from agent_tunix.workbench.diagnosis.edits import assign
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import disagreeing

NOISY_STEPS = 3
"""Steps over which the noise is averaged; each step has its own duplicates."""
NOISY_SHARE = 0.3
"""Std among equal responses over std of all totals. At 0.3, about a tenth of the variance is noise of the verifier."""
NOISY_ERROR = 0.8
"""Ratio at which nearly all of the variance is noise, and the reward says next to nothing about the response."""
NOISY_DUPLICATES = 0.02
"""Share of completions that must have an equal one before their std is evidence."""


class Noisy(Detector):
    """Detector of different scores for equal responses to the same prompt in the same step."""

    names = ("noisy",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._ratio = Window(NOISY_STEPS)
        self._std = Window(NOISY_STEPS)

    def observe(self, step: int, row: Row) -> Iterator[Detection]:
        """Yield the detections as of this step."""
        noise, std = number(row, "completions/duplicate_score_std"), number(row, "rewards/total/std")
        duplicates = number(row, "completions/duplicate_share") or 0.0
        if noise is None or not std or duplicates < NOISY_DUPLICATES:
            return
        self._ratio.add(noise / std)
        self._std.add(noise)
        if self._ratio.is_full and self._ratio.mean >= NOISY_SHARE:
            share = self._ratio.mean
            yield Detection(
                "noisy",
                Severity.ERROR if share >= NOISY_ERROR else Severity.WARNING,
                share,
                f"equal responses to the same prompt earned totals with a std of {self._std.mean:.3g}, {share:.0%} "
                "of that of all totals: the policy learns the noise of the verifier; make the verifier repeatable, "
                "or average several scores",
                evidence={
                    "completions/duplicate_score_std": self._std.mean,
                    "rewards/total/std": std,
                    "completions/duplicate_share": duplicates,
                },
                edits=(
                    assign("grpo.num_generations", 2 * self.context.num_generations),
                    assign("grpo.advantage_scaling", "batch"),
                ),
                pick=disagreeing,
            )
