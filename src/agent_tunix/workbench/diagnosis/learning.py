"""Detection of a policy that stops learning: collapsed, far from its start, or with nothing left to compare."""

import math
from collections.abc import Iterator

from agent_tunix.overrides import assign
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import (
    Detection,
    Detector,
    Fall,
    Row,
    Window,
    count_completions,
    number,
    span_of,
)
from agent_tunix.workbench.diagnosis.edits import round_figure, slower
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import earnings_of_dead_groups

COLLAPSED_STEPS = 2
"""Steps in a row: one batch of similar prompts may deserve similar answers. A single text is reported at once."""
COLLAPSED_PROMPTS = 4
"""Least number of different prompts per step for which one common answer is a sign."""
COLLAPSED_SHARE = 1 / 8
"""Distinct responses per prompt: at most two for sixteen prompts."""
COLLAPSED_FALL = 4.0
"""If more than one response is left, the start must have had this many times as many.
A task with few possible answers has few from the start.
"""


class Collapsed(Detector):
    """Detector of a policy that gives one response to nearly all prompts of a step."""

    names = ("collapsed_to_one_output",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._distinct = Window(COLLAPSED_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        share = number(row, "completions/distinct_share")
        prompts = int(number(row, "completions/distinct_prompts") or self.context.num_prompts)
        if share is None or prompts < COLLAPSED_PROMPTS or number(row, "rewards/total/mean") is None:
            return  # episodes that all failed have no text, which says nothing about the policy
        now = share * count_completions(row)
        self._distinct.add(now)
        distinct, start = max(1.0, self._distinct.high), self._distinct.start
        few = self._distinct.is_full and distinct <= COLLAPSED_SHARE * prompts and start >= COLLAPSED_FALL * distinct
        if few or round(now) == 1:
            distinct = now
            yield Detection(
                "collapsed_to_one_output",
                Severity.ERROR,
                1.0 / distinct,
                f"the {count_completions(row)} completions of {prompts} prompts have only {distinct:.0f} different "
                "texts: the policy has collapsed; go back to an earlier checkpoint with a lower learning rate",
                evidence={
                    "completions/distinct_share": share,
                    "distinct_at_start": start,
                    "policy/entropy": number(row, "policy/entropy") or 0.0,
                },
                edits=(slower(self.context),),
            )


LOST_STEPS = 3
"""Steps in a row in which the total must be so low; a batch of hard prompts is over sooner."""
LOST_SHARE = 0.25
"""Largest share that is left of the earlier total, both measured from the least possible total."""
LOST_FROM = 0.1
"""Least share of its range that the earlier total had; without it there was nothing to lose."""
LOST_ERRORS = 3.0
"""Least fall, in standard errors of the mean total of a step; a small batch has low steps by chance."""


class RewardCollapse(Detector):
    """Detector of a policy that has lost most of what it earned.

    The earlier total is that of the first step, or the most that each of several steps in a row earned.
    """

    names = ("reward_collapse",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._floor = math.inf if context.range is None else context.range[0]
        self._weights: list[float | None] = []
        self._total = Window(LOST_STEPS)
        self._before = self._span = self._error = 0.0

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        total, low = number(row, "rewards/total/mean"), number(row, "rewards/total/min")
        if total is None or low is None:
            return
        self._floor = min(self._floor, low)
        self._span = max(self._span, span_of(self.context, row))
        weights = _weights_in(row, self.context)
        if not self._total.count or weights != self._weights:  # another weight alone changes the total
            self._weights, self._total = weights, Window(LOST_STEPS)
            self._before, self._error = total, _standard_error(row)
        self._total.add(total)
        if not self._total.is_full:
            return
        if self._total.low > self._before:
            self._before, self._error = self._total.low, _standard_error(row)
        earned, remainder = self._before - self._floor, self._total.high - self._floor
        is_lost = remainder <= LOST_SHARE * earned and earned - remainder >= LOST_ERRORS * self._error
        if is_lost and 0 < earned >= LOST_FROM * self._span:
            yield Detection(
                "reward_collapse",
                Severity.ERROR,
                1.0,
                f"the mean total was {self._before:.3g} and is {total:.3g}: updates destroy the policy rather than"
                " teach it; go back to an earlier checkpoint with a lower learning rate",
                evidence={
                    "total_before": self._before,
                    "rewards/total/mean": total,
                    "policy/grad_norm": number(row, "policy/grad_norm") or 0.0,
                },
                edits=(slower(self.context),),
            )


def _weights_in(row: Row, context: RunContext) -> list[float | None]:
    return [number(row, f"rewards/{component.name}/weight") for component in context.components]


def _standard_error(row: Row) -> float:
    return (number(row, "rewards/total/std") or 0.0) / math.sqrt(max(1, count_completions(row)))


ENTROPY_STEPS = 3
"""Steps that make the start, and the recent past."""
ENTROPY_SHARE = 0.1
"""Share of the entropy at the start. A task with one right answer lowers it as far, hence the next two constants."""
ATTAINED = 0.75
"""Share of its range that the total must have reached to count as good: low entropy is then knowledge, not collapse."""
LEARNED = 0.5
"""Or the total has risen by this many of the standard deviations that it had at the start."""


class EntropyCollapse(Detector):
    """Detector of a policy that has become certain without becoming good."""

    names = ("entropy_collapse",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._entropy = Window(ENTROPY_STEPS)
        self._total = Window(ENTROPY_STEPS)
        self._std = Window(ENTROPY_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self._entropy.add(number(row, "policy/entropy"))
        self._total.add(number(row, "rewards/total/mean"))
        self._std.add(number(row, "rewards/total/std"))
        if not (self._entropy.is_past_start and self._total.is_past_start) or self._entropy.start <= 0:
            return
        share = self._entropy.mean / self._entropy.start
        if share > ENTROPY_SHARE or self._is_good():
            return
        yield Detection(
            "entropy_collapse",
            Severity.WARNING,
            ENTROPY_SHARE / max(share, 1e-6),
            f"the policy's entropy has fallen to {share:.0%} of its start, {self._entropy.mean:.2g} nats per token, "
            f"while the total is {self._total.mean:.3g}: the policy hardly explores any more; lower the learning rate",
            evidence={
                "policy/entropy": self._entropy.mean,
                "entropy_at_start": self._entropy.start,
                "rewards/total/mean": self._total.mean,
            },
            edits=(slower(self.context),),
        )

    def _is_good(self) -> bool:
        return attains(self._total, self.context) or has_learned(self._total, self._std)


def attains(total: Window, context: RunContext) -> bool:
    """Return True if the mean total has reached `ATTAINED` of its range; False if that is not declared."""
    span = context.range
    return span is not None and total.mean >= span[0] + ATTAINED * (span[1] - span[0])


def has_learned(total: Window, std: Window) -> bool:
    """Return True if the mean total has risen by at least `LEARNED` of its standard deviations at the start."""
    return total.is_past_start and total.rise >= LEARNED * std.start > 0


FLAT_STEPS = 50
"""Steps without progress; slow learning shows only over many."""
FLAT_WINDOW = 10
"""Steps that make the start, and the recent past."""
BETA_USUAL = 0.1
"""Weights of the KL penalty above this are unusual."""
BETA_ADVISED = 0.02
FASTER = 3.0
"""Factor by which advice raises a learning rate."""


class NoProgress(Detector):
    """Detector of a total that stays where it was, although it could rise."""

    names = ("no_progress",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._total = Window(FLAT_WINDOW)
        self._std = Window(FLAT_WINDOW)
        self._weights: list[float | None] = []

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self._total.add(number(row, "rewards/total/mean"))
        self._std.add(number(row, "rewards/total/std"))
        weights = _weights_in(row, self.context)
        self._weights = self._weights or weights
        is_flat = self._total.count >= FLAT_STEPS and self._total.rise <= self._total.noise
        if not is_flat or weights != self._weights or not self._std.high or attains(self._total, self.context):
            return
        beta, rate = self.context.number("grpo.beta", 0.0), self.context.number("optimizer.learning_rate", 1e-4)
        is_held = beta > BETA_USUAL
        cause = (
            f"grpo.beta={beta:g} holds the policy at the reference" if is_held else "a higher learning rate may help"
        )
        edit = (
            assign("grpo.beta", BETA_ADVISED)
            if is_held
            else assign("optimizer.learning_rate", round_figure(FASTER * rate))
        )
        yield Detection(
            "no_progress",
            Severity.INFO,
            1.0,
            f"the mean total has not risen in {self._total.count} steps: it was {self._total.start:.3g} and is "
            f"{self._total.mean:.3g}; {cause}",
            evidence={
                "total_at_start": self._total.start,
                "rewards/total/mean": self._total.mean,
                "policy/kl": number(row, "policy/kl") or 0.0,
                "policy/grad_norm": number(row, "policy/grad_norm") or 0.0,
            },
            edits=(edit,),
        )


KL_STEPS = 3
"""Steps in a row for a warning; an error needs only one."""
KL_HIGH = 1.0
"""Nats per token: the reference gives an average token about a third of the policy's probability.
Healthy runs stay below 0.1.
"""
KL_ERROR = 5.0
"""Nats per token at which the policy has hardly a sentence in common with the reference."""


class KlRunaway(Detector):
    """Detector of a policy that has moved far from the reference."""

    names = ("kl_runaway",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._kl = Window(KL_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        kl = number(row, "policy/kl")
        self._kl.add(kl)
        # With grpo.beta=0 there is no reference, and the metric is null.
        if kl is not None and (kl >= KL_ERROR or (self._kl.is_full and self._kl.low >= KL_HIGH)):
            yield Detection(
                "kl_runaway",
                Severity.ERROR if kl >= KL_ERROR else Severity.WARNING,
                kl,
                f"the KL divergence from the reference has reached {kl:.2g} nats a token; lower the learning rate",
                evidence={"policy/kl": kl, "policy/grad_norm": number(row, "policy/grad_norm") or 0.0},
                edits=(slower(self.context),),
            )


MASKED_STEPS = 3
"""Steps in a row for a warning."""
MASKED_HIGH = 0.5
"""Share of masked tokens from which most of the sampling is wasted."""
MASKED_ERROR = 0.99
"""Share at which hardly a token trains."""


class SamplerMasked(Detector):
    """Detector of a correction that masks most of what was sampled."""

    names = ("sampler_masked",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._share = Window(MASKED_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        share = number(row, "policy/sampler_masked_share")
        self._share.add(share)
        if share is not None and self._share.is_full and self._share.low >= MASKED_HIGH:
            yield Detection(
                "sampler_masked",
                Severity.ERROR if self._share.low >= MASKED_ERROR else Severity.WARNING,
                share,
                f"grpo.sampler_correction masks {share:.0%} of the sampled tokens, so that little trains: sampling and "
                "training disagree more than its bounds allow; find out why, widen the bounds, or set "
                "grpo.sampler_correction=token, which keeps all tokens",
                edits=("grpo.sampler_correction=token",),
                evidence={"policy/sampler_masked_share": share},
            )


DEAD_STEPS = 5
"""Steps that make the start, and the recent past."""
DEAD_LEVEL = 0.85
"""Share of dead groups at which most of the sampling is wasted."""
DEAD_GROWN = 0.6
"""Share that a growing one must have reached."""
DEAD_GROWTH = 0.3
"""Least growth of the share."""
DEAD_SOLVED = 0.5
"""Share of the dead groups whose members all earn the highest total: success rather than failure."""

DEAD_REPEATS = 0.5
"""Share of completions with an equal one in their group, from which on more of them would be the same again."""


class DeadGroups(Detector):
    """Detector of a large or growing share of groups without an advantage."""

    names = ("dead_groups_growing", "dead_groups")

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._dead = Window(DEAD_STEPS)
        self._solved = Window(DEAD_STEPS)
        self._duplicates = Window(DEAD_STEPS)
        self._total = Window(DEAD_STEPS)
        self._fall = Fall(context)
        self._varied = False

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self._fall.add(row)
        self._total.add(number(row, "rewards/total/mean"))
        self._dead.add(number(row, "rewards/dead_groups"))
        self._solved.add(number(row, "rewards/groups/all_highest"))
        self._duplicates.add(number(row, "completions/duplicate_share"))
        self._varied = self._varied or bool(number(row, "rewards/total/std"))
        if not self._dead.is_full or not self._varied:
            return  # if all totals were always equal, `Constant` reports it
        dead = self._dead.mean
        solved = self._solved.mean if self._solved.is_full else 0.0
        if self._dead.is_past_start and dead >= DEAD_GROWN and self._dead.is_rising(DEAD_GROWTH):
            name, story = (
                "dead_groups_growing",
                f"in {dead:.0%} of the groups, up from {self._dead.start:.0%}, all completions earn the same",
            )
        elif dead >= DEAD_LEVEL:
            name, story = "dead_groups", f"in {dead:.0%} of the groups all completions earn the same"
        else:
            return
        # A component such as brevity may keep right answers below the highest total.
        is_solved = solved >= DEAD_SOLVED * dead or attains(self._total, self.context)
        if is_solved:
            story += ", because the policy has learned what they could teach: harder problems would teach more"
        elif self._fall.is_deep:
            story += ", and the total has fallen: the policy has lost what told completions apart"
        elif self._repeats:
            story += "; sample more different completions"
        else:
            story += "; sample more completions a prompt"
        evidence = {
            "rewards/dead_groups": dead,
            "dead_groups_at_start": self._dead.start,
            "rewards/groups/all_highest": solved,
        }
        if self._duplicates.is_full:
            evidence["completions/duplicate_share"] = self._duplicates.mean
        yield Detection(
            name,
            Severity.INFO if is_solved else Severity.WARNING,
            dead,
            story,
            evidence=evidence,
            edits=() if is_solved else (slower(self.context),) if self._fall.is_deep else self._edits(),
            tell=earnings_of_dead_groups,
        )

    @property
    def _repeats(self) -> bool:
        """True if most completions equal another one of their prompt, or if the temperature is below 1."""
        is_cold = self.context.number("generation.temperature", 1.0) < 1.0
        return is_cold or (self._duplicates.is_full and self._duplicates.mean >= DEAD_REPEATS)

    def _edits(self) -> tuple[str, ...]:
        if not self._repeats:
            return (assign("grpo.num_generations", 2 * self.context.num_generations),)
        temperature = self.context.number("generation.temperature", 1.0)
        return (assign("generation.temperature", 1.0 if temperature < 1.0 else round_figure(1.2 * temperature)),)
