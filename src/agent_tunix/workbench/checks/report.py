"""Findings of a check, and their text and JSON forms."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import Range, format_range, show_kind

_LONGEST_SHOWN = 160


class Status(enum.StrEnum):
    """Result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckExample:
    """A response that shows a finding."""

    response: str
    answer: str  # reference that the response was scored against
    value: float | None  # its score; None if it is unscored
    gold: float | None = None  # score of the gold solution of the same problem, if it matters
    detail: str = ""  # explanation by the reward

    def lines(self) -> Iterator[str]:
        """Yield lines of text for a terminal."""
        earned = "is unscored" if self.value is None else f"earns {self.value:g}"
        against = "" if self.gold is None else f", the gold solution {self.gold:g}"
        yield f"{shorten(self.response)} {earned}{against} (reference {shorten(self.answer, 40)})"
        if self.detail:
            yield f"  {self.detail}"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """Result of one check."""

    check: str
    status: Status
    text: str
    examples: tuple[CheckExample, ...] = ()  # responses that show it

    def lines(self, width: int) -> Iterator[str]:
        """Yield lines of text for a terminal, with the name of the check padded to `width`."""
        yield f"{self.status.value:<8}{self.check:<{width}}  {self.text}"
        for example in self.examples:
            for line in example.lines():
                yield f"{'':<8}{'':<{width}}    {line}"

    def to_data(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        return {
            "check": self.check,
            "status": self.status.value,
            "text": self.text,
            "examples": [
                {"response": e.response, "answer": e.answer, "value": e.value, "gold": e.gold, "detail": e.detail}
                for e in self.examples
            ],
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings about a reward."""

    name: str
    kind: Kind | None  # its kind, which decides which checks apply
    range: Range | None
    problems: int  # number of problems that it was tried on
    style: str  # the style in which the gold solutions earn most
    findings: tuple[CheckFinding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)  # further entries for JSON, such as the seed

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(finding.check for finding in self.findings if finding.status is Status.FAILED)

    @property
    def text(self) -> str:
        """The report as text for a terminal."""
        width = max(len(finding.check) for finding in self.findings)
        lines = [
            f"{self.name}: kind {show_kind(self.kind)}, range {format_range(self.range)}; "
            f"{self.problems} problems, answers stated in the style {self.style!r}"
        ]
        for finding in self.findings:
            lines.extend(finding.lines(width))
        count = len(self.failed)
        lines.append(f"{self.name} failed {count} check{'s' * (count != 1)}" if count else f"{self.name} passed")
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "reward": self.name,
            "kind": show_kind(self.kind),
            "range": self.range and list(self.range),
            "problems": self.problems,
            "style": self.style,
            "passed": self.passed,
            "findings": [finding.to_data() for finding in self.findings],
            **self.facts,
        }


def shorten(text: str, length: int = _LONGEST_SHOWN) -> str:
    """Return a text in quotes, without its middle if it is long."""
    quoted = repr(text)
    if len(quoted) <= length:
        return quoted
    half = length // 2
    return f"{quoted[:half]} … {quoted[-half // 2 :]} ({len(text):,} characters)"
