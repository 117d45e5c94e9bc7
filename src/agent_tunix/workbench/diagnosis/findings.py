"""Findings of a diagnosis: the fault, its severity, and changes that may help."""

import enum
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agent_tunix.visible_text import one_line

ALWAYS = ("always_zero", "always_one", "always_the_same")
"""Findings that a reward never told completions apart. Whatever else a run shows matters less."""


class Severity(enum.StrEnum):
    """Severity of a finding."""

    INFO = "info"
    """Nothing is wrong, but it is worth knowing."""

    WARNING = "warning"
    """The run teaches less than it could, or something unintended."""

    ERROR = "error"
    """The run teaches nothing or harms the policy; stop it."""

    @property
    def rank(self) -> int:
        """Order of severity, 0 for the lowest."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a run shows."""

    name: str  # Name in snake_case. The page *Diagnosis* of the docs lists all names.
    severity: Severity
    step: int  # training step at which the evidence was sufficient
    summary: str
    subject: str = ""  # component that it concerns; "" for the run as a whole
    # Figures by name: metrics, or values computed from them.
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    rollout_ids: tuple[str, ...] = ()  # A few completions that show it; empty if completions were not available
    edits: tuple[str, ...] = ()  # Hydra overrides that may help. Each can be added to the run's command line as it is.

    def to_data(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        lists = {"rollout_ids": list(self.rollout_ids), "edits": list(self.edits)}
        return {**fields, **lists, "severity": self.severity.value, "evidence": dict(self.evidence)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the finding that `to_data` stored; raise ValueError for any other data."""
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
    def urgency(self) -> tuple[int, bool]:
        """Key by which findings are sorted: the most severe first, and among equals those of `ALWAYS`."""
        return -self.severity.rank, self.name not in ALWAYS

    @property
    def title(self) -> str:
        """Name and subject, such as `gate_never_opens (brevity)`."""
        return f"{self.name} ({self.subject})" if self.subject else self.name

    def describe(self) -> str:
        """Return several lines of text for a terminal: the fault, the evidence, and the edits quoted for a shell."""
        lines = [f"{self.title}, step {self.step}: {self.summary}"]
        if self.evidence:
            lines.append("  evidence: " + ", ".join(f"{name} {_show(value)}" for name, value in self.evidence.items()))
        if self.rollout_ids:
            lines.append("  rollouts: " + ", ".join(self.rollout_ids))
        lines += [f"  try: {shlex.quote(edit)}" for edit in self.edits]
        return "\n".join(map(one_line, lines))


def _show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
