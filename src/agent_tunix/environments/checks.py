"""Checks that an environment must pass before a policy can learn in it.

| check | passes if |
| --- | --- |
| `reset` | an episode begins |
| `schema` | every tool and argument is described; a missing description is a note |
| `deterministic` | equal rows, seeds and calls give equal observations and scores |
| `independent` | two open episodes do not change each other's observations |
| `arguments` | wrong arguments and unknown tools are refused, and the episode continues |
| `hostile` | extreme values break no episode; errors that tools raise are notes |
| `score` | the score is a number or None |
| `release` | episodes can be closed, and more can be opened |

A call that takes too long or ends its process fails the check in which it happens. Calls have a time limit in a worker
process, but not in this one.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_tunix.environments.environment import EpisodeEnvironment, EpisodeSource, closing_episode
from agent_tunix.environments.outcomes import CallOutcome
from agent_tunix.environments.tools import Tool
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.sample import Outcome

CheckStatus = Literal["passed", "note", "failed"]

_TURNS = ("1", "hello", "0")
_HOSTILE: dict[str, tuple[Any, ...]] = {
    "string": ("", "x" * 10_000, "\x00'\"\\{}<tool_call>", "ünïcödé ∑ 🦆"),
    "integer": (0, -1, 10**18),
    "number": (0.0, -1.5, 1e300),
    "array": ([],),
    "object": ({},),
}
_NUM_RELEASED = 8
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class EnvironmentFinding:
    """Result of one check.

    Attributes:
        detail: What was found, for a person.
    """

    check: str
    status: CheckStatus
    detail: str = ""


@dataclass(slots=True)
class EnvironmentReport:
    """Results of all checks of an environment."""

    findings: list[EnvironmentFinding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return all(finding.status != "failed" for finding in self.findings)

    @property
    def text(self) -> str:
        """One line for each check."""
        width = max(len(finding.check) for finding in self.findings)
        return "\n".join(f"{one.status:<6}  {one.check:<{width}}  {one.detail}".rstrip() for one in self.findings)


def check_environment(
    source: EpisodeSource, row: Mapping[str, Any] | None = None, *, seed: int = 0
) -> EnvironmentReport:
    """Check an environment with made-up calls.

    Args:
        source: The environment; in a worker process, calls have a time limit.
        row: Row of the dataset for every episode.
        seed: Seed for every episode.
    """
    return _Checker(source, row or {}, seed).run()


class _Checker:
    def __init__(self, source: EpisodeSource, row: Mapping[str, Any], seed: int) -> None:
        self._source = source
        self._row = row
        self._seed = seed
        self._report = EnvironmentReport()
        self._tools: Sequence[Tool] = ()

    def run(self) -> EnvironmentReport:
        if not self._check("reset", self._begin):
            return self._report
        for name, check in (
            ("schema", self._schema),
            ("deterministic", self._deterministic),
            ("independent", self._independent),
            ("arguments", self._arguments),
            ("hostile", self._hostile),
            ("score", self._score),
            ("release", self._release),
        ):
            self._check(name, check)
        return self._report

    def _check(self, name: str, check: Callable[[], str | None]) -> bool:
        """Run a check, which returns a note or raises an error; return True unless it failed."""
        try:
            note = check()
        except (EnvironmentFailedError, _Wrong) as error:
            self._report.findings.append(EnvironmentFinding(name, "failed", str(error)))
            return False
        self._report.findings.append(EnvironmentFinding(name, "note" if note else "passed", note or ""))
        return True

    @contextlib.contextmanager
    def _episode(self) -> Iterator[tuple[EpisodeEnvironment, str | None]]:
        episode = self._source.open()
        with closing_episode(episode):
            yield episode, episode.reset(self._row, self._seed)

    def _begin(self) -> None:
        with self._episode() as (episode, _):
            self._tools = list(episode.tools)

    def _schema(self) -> str | None:
        names = [tool.name for tool in self._tools]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise _Wrong(f"several tools are named {', '.join(repeated)}; give each its own name")
        notes = [f"{tool.name} has no description" for tool in self._tools if not tool.description.strip()]
        for tool in self._tools:
            for name, schema in (tool.parameters.get("properties") or {}).items():
                if not isinstance(schema, Mapping):
                    continue
                if not {"type", "enum", "const", "anyOf", "allOf", "$ref"} & schema.keys():
                    notes.append(f"{tool.name}: `{name}` has no type")
                if not schema.get("description"):
                    notes.append(f"{tool.name}: `{name}` has no description")
        if not self._tools and not self._source.traits.replies:
            notes.append("there are no tools, so an episode has one turn")
        return "; ".join(notes) or None

    def _deterministic(self) -> None:
        first, second = self._observe(), self._observe()
        _compare(
            first,
            second,
            "differs between two episodes with equal rows, seeds and calls; draw from `random`, from NumPy's global "
            "generator or from `seed`",
        )

    def _independent(self) -> None:
        alone = self._observe()
        with self._episode() as (other, _):
            _act(other, self._tools)
            beside = self._observe()
        _compare(alone, beside, "differs if another episode is open; keep the state in the instance, not in the class")

    def _arguments(self) -> None:
        with self._episode() as (episode, _):
            _expect(episode, "no_such_tool", {}, CallOutcome.UNKNOWN_TOOL)
            for tool in self._tools:
                required = tool.parameters.get("required")
                if not required:
                    continue
                _expect(episode, tool.name, {}, CallOutcome.BAD_ARGUMENTS)
                schema = (tool.parameters.get("properties") or {}).get(required[0])
                kind = schema.get("type") if isinstance(schema, Mapping) else None
                if kind in ("string", "integer", "number", "array"):
                    wrong = {**_arguments_for(tool, 0), required[0]: {"unexpected": [None]}}
                    _expect(episode, tool.name, wrong, CallOutcome.BAD_ARGUMENTS)

    def _hostile(self) -> str | None:
        raised: dict[str, str] = {}
        with self._episode() as (episode, _):
            for tool in self._tools:
                for arguments in _hostile_arguments(tool):
                    result = episode.call(tool.name, arguments)
                    if result.outcome is CallOutcome.TOOL_ERROR:
                        raised.setdefault(tool.name, result.detail or result.text)
            if self._source.traits.replies:
                for text in _HOSTILE["string"]:
                    if episode.respond(text).done:
                        break
        return "; ".join(f"{name} raises: {detail}" for name, detail in raised.items()) or None

    def _score(self) -> str | None:
        with self._episode() as (episode, first):
            _act(episode, self._tools)
            messages = [*(episode.prompt() or [{"role": "user", "content": first or ""}])]
            score = episode.score([*messages, {"role": "assistant", "content": ""}], "finished")
        if score is not None and score.outcome in (Outcome.ERROR, Outcome.TIMEOUT, Outcome.BAD_REFERENCE):
            raise _Wrong(f"{score.outcome}: {score.detail}")
        return None if score is not None else "the environment does not score; a reward function has to"

    def _release(self) -> None:
        for _ in range(_NUM_RELEASED):
            with self._episode():
                pass

    def _observe(self) -> list[tuple[str, Any]]:
        with self._episode() as (episode, first):
            observations: list[tuple[str, Any]] = [("the first observation", first), ("the prompt", episode.prompt())]
            observations += _act(episode, self._tools)
            score = episode.score([{"role": "assistant", "content": ""}], "finished")
            return [*observations, ("the score", None if score is None else score.value)]


class _Wrong(Exception):
    """Error for a property that does not hold. The message is for the user."""


def _act(episode: EpisodeEnvironment, tools: Sequence[Tool]) -> list[tuple[str, Any]]:
    """Return what an episode replies to made-up calls and turns."""
    observations: list[tuple[str, Any]] = []
    for place, tool in itertools.product(range(2), tools):
        result = episode.call(tool.name, _arguments_for(tool, place))
        observations.append((f"the result of {tool.name}", (result.outcome, result.text)))
    if episode.traits.replies:
        for text in _TURNS:
            reply = episode.respond(text)
            observations.append((f"the reply to {text!r}", (reply.text, reply.done)))
            if reply.done:
                break
    return observations


def _compare(one: Sequence[tuple[str, Any]], other: Sequence[tuple[str, Any]], what: str) -> None:
    for (name, value), (_, again) in zip(one, other, strict=False):
        if value != again:
            raise _Wrong(f"{name} {what}: {str(value)[:80]!r} and {str(again)[:80]!r}")


def _expect(episode: EpisodeEnvironment, name: str, arguments: Mapping[str, Any], outcome: CallOutcome) -> None:
    result = episode.call(name, arguments)
    if result.outcome is not outcome:
        raise _Wrong(f"{name} with the arguments {str(arguments)[:80]} gave {result.outcome}, not {outcome}")


def _arguments_for(tool: Tool, place: int) -> dict[str, Any]:
    """Return arguments that fit a tool's schema; `place` chooses among them."""
    definitions = tool.parameters.get("$defs") or {}
    properties = tool.parameters.get("properties") or {}
    return {
        name: _value_for(properties.get(name, {}), place, definitions) for name in tool.parameters.get("required", ())
    }


def _value_for(schema: Mapping[str, Any], place: int, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    if depth > _DEEPEST or not isinstance(schema, Mapping):
        return None
    if "$ref" in schema:
        definition = definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        return _value_for(definition, place, definitions, depth + 1)
    if "enum" in schema:
        return schema["enum"][place % len(schema["enum"])]
    if options := schema.get("anyOf") or schema.get("allOf"):
        return _value_for(options[0], place, definitions, depth + 1)
    match schema.get("type"):
        case "integer":
            return int(schema.get("minimum", 1)) + place
        case "number":
            return float(schema.get("minimum", 1.0)) + place / 2
        case "boolean":
            return place == 0
        case "array":
            return [_value_for(schema.get("items") or {}, place, definitions, depth + 1)]
        case "object":
            required = schema.get("required", ())
            properties = schema.get("properties") or {}
            return {name: _value_for(properties.get(name, {}), place, definitions, depth + 1) for name in required}
        case "null":
            return None
    return ("word", "2 + 2")[place % 2]


def _hostile_arguments(tool: Tool) -> Iterator[dict[str, Any]]:
    """Yield arguments of the right types with one extreme value each."""
    for name, schema in (tool.parameters.get("properties") or {}).items():
        kind = str(schema.get("type")) if isinstance(schema, Mapping) and "enum" not in schema else ""
        for value in _HOSTILE.get(kind, ()):
            yield {**_arguments_for(tool, 0), name: value}
