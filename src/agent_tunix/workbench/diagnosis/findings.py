"""What a diagnosis says: a finding, how grave it is, and what to change."""

import enum
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


class Severity(enum.StrEnum):
    """How grave a finding is."""

    INFO = "info"
    """Worth knowing; nothing is wrong."""

    WARNING = "warning"
    """The run teaches less than it could, or something other than was meant."""

    ERROR = "error"
    """The run teaches nothing, or harms the policy; going on is a waste."""

    @property
    def rank(self) -> int:
        """0 for the least grave."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a run shows.

    Attributes:
        name: What it is, in snake_case; the page *Diagnosis* of the docs lists all of them.
        severity: How grave it is.
        step: The training step at which the evidence sufficed.
        summary: What is the matter, in a sentence.
        subject: The component it is about; "" for the run as a whole.
        evidence: The figures behind it by name: metrics, or what was computed of them.
        rollout_ids: Completions that show it, at most a few; empty where completions were not at hand.
        edits: What to change: Hydra overrides, each of which can be added to the run's command line as it is.
    """

    name: str
    severity: Severity
    step: int
    summary: str
    subject: str = ""
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    rollout_ids: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "name": self.name,
            "severity": self.severity.value,
            "step": self.step,
            "summary": self.summary,
            "subject": self.subject,
            "evidence": dict(self.evidence),
            "rollout_ids": list(self.rollout_ids),
            "edits": list(self.edits),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What `to_data` gave.

        Raises:
            ValueError: It is no finding, and why.
        """
        try:
            return cls(
                name=str(data["name"]),
                severity=Severity(data["severity"]),
                step=int(data["step"]),
                summary=str(data["summary"]),
                subject=str(data.get("subject", "")),
                evidence=dict(data["evidence"]),
                rollout_ids=tuple(data["rollout_ids"]),
                edits=tuple(data["edits"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a finding has a name, severity, step, summary, evidence, …: {error!r}") from error

    @property
    def title(self) -> str:
        """`gate_never_opens (brevity)`."""
        return f"{self.name} ({self.subject})" if self.subject else self.name

    def describe(self) -> str:
        """For a person, several lines: what, on which evidence, and what to change, quoted for a shell."""
        lines = [f"{self.title}, step {self.step}: {self.summary}"]
        if self.evidence:
            lines.append("  evidence: " + ", ".join(f"{name} {_show(value)}" for name, value in self.evidence.items()))
        if self.rollout_ids:
            lines.append("  rollouts: " + ", ".join(self.rollout_ids))
        lines += [f"  try: {shlex.quote(edit)}" for edit in self.edits]
        return "\n".join(lines)


def _show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
