"""What a check found, and how it is told."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import Range, format_range, show_kind

_LONGEST_SHOWN = 160


class Status(enum.StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckExample:
    """A response that shows what was found.

    Attributes:
        response: Its text.
        answer: The reference it was scored against.
        value: What it earned; None if it went unscored.
        gold: What the gold solution of the same problem earned, where that matters.
        detail: The reward's own explanation.
    """

    response: str
    answer: str
    value: float | None
    gold: float | None = None
    detail: str = ""

    def lines(self) -> Iterator[str]:
        """For a person."""
        earned = "is unscored" if self.value is None else f"earns {self.value:g}"
        against = "" if self.gold is None else f", the gold solution {self.gold:g}"
        yield f"{shorten(self.response)} {earned}{against} (reference {shorten(self.answer, 40)})"
        if self.detail:
            yield f"  {self.detail}"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The end of one check.

    Attributes:
        check: Its name.
        status: How it ended.
        text: What was found, in a sentence.
        examples: Responses that show it.
    """

    check: str
    status: Status
    text: str
    examples: tuple[CheckExample, ...] = ()

    def lines(self, width: int) -> Iterator[str]:
        """For a person."""
        yield f"{self.status.value:<8}{self.check:<{width}}  {self.text}"
        for example in self.examples:
            for line in example.lines():
                yield f"{'':<8}{'':<{width}}    {line}"

    def to_data(self) -> dict[str, Any]:
        """Ready for JSON."""
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
    """All that was found about a reward.

    Attributes:
        name: The reward.
        kind: What decided which checks apply.
        range: The declared range of its values.
        problems: On how many problems it was tried.
        style: The way of stating an answer that it pays best.
        findings: One for each check.
        facts: Further numbers for JSON: the seed, the tries of the fuzzer, and so on.
    """

    name: str
    kind: Kind | None
    range: Range | None
    problems: int
    style: str
    findings: tuple[CheckFinding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(finding.check for finding in self.findings if finding.status is Status.FAILED)

    @property
    def text(self) -> str:
        """For a person."""
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
        """Ready for JSON."""
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
    """A text in quotes, its middle left out where it is long."""
    shown = repr(text)
    if len(shown) <= length:
        return shown
    half = length // 2
    return f"{shown[:half]} … {shown[-half // 2 :]} ({len(text):,} characters)"
