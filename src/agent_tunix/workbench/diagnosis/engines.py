"""Detection of inference engines that do not sample from the policy, or not whole replies."""

from collections.abc import Iterator

from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Row, number
from agent_tunix.workbench.diagnosis.findings import Severity

MISMATCH_GROWTH = 3.0
"""Factor over the first disagreement from which on it is worth a look; `engine.mismatch_limit` stops the run."""
LEAST_MISMATCH = 1e-4
"""Smallest disagreement that counts, in nats a token."""


class EngineMismatch(Detector):
    """Detector of engines whose log-probabilities depart from the policy's."""

    names = ("engine_mismatch",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._first: float | None = None

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        mismatch = number(row, "policy/sampler_mismatch_kl")
        is_stale = any((number(row, name) or 0) > 0 for name in ("engine/staleness/max", "replay/groups"))
        if mismatch is None or "engine/tokens_per_s" not in row or is_stale:
            return
        if self._first is None:
            self._first = max(mismatch, LEAST_MISMATCH)
        if mismatch < MISMATCH_GROWTH * self._first:
            return
        yield Detection(
            "engine_mismatch",
            Severity.WARNING,
            mismatch / self._first,
            f"the engine's log-probabilities depart from the policy's by {mismatch:.2g} nats a token: it may sample "
            "from the base model or from earlier weights, or compute in another type",
            evidence={"policy/sampler_mismatch_kl": mismatch, "policy/sampler_mismatch_kl at first": self._first},
        )


class EngineContext(Detector):
    """Detector of replies that end at the engine's context."""

    names = ("engine_context",)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        num_cut = number(row, "engine/context_cut") or 0.0
        if num_cut > 0:
            yield Detection(
                "engine_context",
                Severity.WARNING,
                num_cut,
                f"{num_cut:.0f} replies ended at the engine's context, before the tokens that the run allows; start "
                "the engine with a longer one, or lower generation.max_generation_steps",
                evidence={"engine/context_cut": num_cut},
            )
