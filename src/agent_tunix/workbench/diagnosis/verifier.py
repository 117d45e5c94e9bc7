"""Detection of scores that are missing or contradict each other: failing verifiers, completions that are cut off."""

from collections.abc import Iterator

from agent_tunix.overrides import assign
from agent_tunix.rewards.mixture import FAILURES
from agent_tunix.rewards.sample import Outcome
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Fall, Row, Window, count_completions, number
from agent_tunix.workbench.diagnosis.edits import slower
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import cut_off, disagreeing, failed, failed_in, most_frequent_reason

FAILING_SHARE = 0.05
"""Share of completions without a score that is worth a warning; a flaky endpoint loses fewer."""
FAILING_ERROR = 0.25
"""Share at which the scored completions are a biased selection of the sampled ones."""
FAILING_COMPLETIONS = 32
"""Completions needed for a share; one step usually has as many."""


class VerifierErrors(Detector):
    """Detector of a reward that fails on many completions: errors, timeouts and bad references."""

    names = ("verifier_errors",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._seen = 0
        self._recent: dict[str, Window] = {}

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        num = count_completions(row)
        if num == 0:
            return
        self._seen += num
        for component in ("", *(component.name for component in self.context.components)):
            prefix = f"rewards/{component}/outcomes" if component else "rewards/outcomes"
            counts = {outcome: number(row, f"{prefix}/{outcome}") or 0.0 for outcome in Outcome if outcome in FAILURES}
            window = self._recent.setdefault(component, Window(3))
            window.add(sum(counts.values()) / num)
            if self._seen >= FAILING_COMPLETIONS and window.mean >= FAILING_SHARE and any(counts.values()):
                if component and self.context.component(component).trains:
                    continue  # its failures leave the total unscored, which is reported
                yield self._detection(component, window.mean, counts)

    def _detection(self, component: str, share: float, counts: dict[Outcome, float]) -> Detection:
        commonest = max(counts, key=lambda outcome: counts[outcome])
        # Only the time limit is a setting. Other failures must be fixed in the reward or in the data.
        slow = commonest is Outcome.TIMEOUT
        longer = assign("rewards.timeout_s", 4 * self.context.number("rewards.timeout_s", 10.0))
        # Training suffers only if a failure leaves the total unscored.
        grave = share >= FAILING_ERROR and not component
        effect = "groups shrink, and what fails is never learned"
        if component:
            effect = "what they would have shown is not known"
        elif self.context.settings.get("rewards.on_failure") == "zero":
            effect = "they count as 0 (rewards.on_failure=zero), so that the policy learns to avoid what fails"
        return Detection(
            "verifier_errors",
            Severity.ERROR if grave else Severity.WARNING,
            share,
            f"{share:.0%} of the completions have no {'score' if not component else f'value of {component}'}, most"
            f" often by {commonest.replace('_', ' ')}: {effect}; correct the reward",
            subject=component,
            evidence={f"share_failing{f'/{component}' if component else ''}": share}
            | {f"rewards/{f'{component}/' if component else ''}outcomes/{o}": n for o, n in counts.items() if n},
            edits=(longer,) if slow else (),
            pick=failed_in(component) if component else failed,
            tell=most_frequent_reason(component),
        )


TRUNCATED_STEPS = 2
"""Steps in a row at the start of a run: the limit is too low for the task."""
TRUNCATED_LATER = 6
"""Steps in a row later on: the policy has grown into the limit, for which another finding may give the reason."""
TRUNCATED_SHARE = 0.3
"""Share of completions cut at the limit that is worth a warning: they lack their ends, where answers are."""
TRUNCATED_ERROR = 0.8
"""Share at which hardly any completion is whole."""


class Truncated(Detector):
    """Detector of completions that are cut at the length limit."""

    names = ("truncation",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._share = Window(TRUNCATED_STEPS)
        self._steps = 0
        self._first: float | None = None
        self._fall = Fall(context)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        clipped = number(row, "completions/clipped_share")
        if clipped is None or "turns/mean" in row:  # `LimitedEpisodes` reports episodes
            return
        self._share.add(clipped)
        self._fall.add(row)
        self._first = clipped if self._first is None else self._first
        self._steps = self._steps + 1 if clipped >= TRUNCATED_SHARE else 0
        if self._steps >= (TRUNCATED_STEPS if self._first >= TRUNCATED_SHARE else TRUNCATED_LATER):
            share = self._share.mean
            limit = int(self.context.number("generation.max_generation_steps", 0))
            longer = assign("generation.max_generation_steps", 4 * limit if share >= TRUNCATED_ERROR else 2 * limit)
            edits, advice = (longer,) if limit else (), "allow more, or teach the policy to be brief"
            if self._fall.is_deep:
                edits = (slower(self.context),)
                advice = "the total has fallen too, so that the policy no longer ends rather than lacks room"
            yield Detection(
                "truncation",
                Severity.ERROR if share >= TRUNCATED_ERROR else Severity.WARNING,
                share,
                f"{share:.0%} of the completions were cut at generation.max_generation_steps={limit}, before they could"
                f" end; {advice}",
                evidence={
                    "completions/clipped_share": share,
                    "completions/length_mean": number(row, "completions/length_mean") or 0.0,
                },
                edits=edits,
                pick=cut_off,
            )


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

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
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
                f"equal responses to the same prompt earned totals with a std of {self._std.mean:.3g}, {share:.0%} of"
                " that of all totals: the policy learns the verifier's noise; make it repeatable",
                evidence={
                    "completions/duplicate_score_std": self._std.mean,
                    "rewards/total/std": std,
                    "completions/duplicate_share": duplicates,
                },
                pick=disagreeing,
            )
