"""Output of `agent-tunix rewards show` and `try`."""

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from agent_tunix.rewards import Mixture, Score, fingerprint
from agent_tunix.rewards.kinds import (
    component_kind,
    declared_range,
    format_range,
    function_of,
    kind_of,
    range_of,
    show_kind,
)
from agent_tunix.rewards.mixture import Component
from agent_tunix.rewards.score_data import show_fields

_GIVEN = {
    "response": "the completion's text",
    "completion": "the completion's text",
    "responses": "the completions' texts",
    "completions": "the completions of the batch",
    "prompt": "the problem",
    "prompts": "the problems of the batch",
    "environments": "the environments of the episodes at their end, or the column of that name",
    "format": "the template that a response should follow",
    "step": "the training step, from 1; 0 outside training",
    "max_steps": "number of steps of the run; 0 outside training",
    "metadata": "every column of the row, as a dict",
    "answer": "the column `answer`, the stripped reference",
}


def describe_reward(mixture: Mixture) -> dict[str, Any]:
    """Return a description of a reward for JSON."""
    return {
        "name": mixture.name,
        "kind": show_kind(kind_of(mixture)),
        "range": list(range_of(mixture) or ()) or None,
        "fingerprint": fingerprint(mixture).short,
        "components": [_describe_component(component) for component in mixture.components],
    }


def reward_page(mixture: Mixture) -> str:
    """Return a description of a reward as text."""
    description = describe_reward(mixture)
    lines = [
        mixture.name,
        f"  kind         {description['kind']}",
        f"  range        {format_range(range_of(mixture))}",
        f"  fingerprint  {description['fingerprint']}",
    ]
    single = len(description["components"]) == 1
    for component in description["components"]:
        if single:
            lines += [f"  source       {component['source']}", f"  signature    {component['signature']}"]
        else:
            lines += [
                "",
                f"{component['name']}, weight {component['weight']}",
                f"  kind         {component['kind']}",
                f"  range        {format_range(component['range'] and tuple(component['range']))}",
                f"  source       {component['source']}",
                f"  signature    {component['signature']}",
            ]
        if component["reason"]:
            lines.append(f"  reason       {component['reason']}")
        lines += ["", *(f"  {name:<12} {value}" for name, value in component["parameters"].items())]
        if component["documentation"]:
            lines += ["", *textwrap.indent(component["documentation"], "  ").splitlines()]
    return "\n".join(lines)


def score_data(mixture: Mixture, score: Score, step: int) -> dict[str, Any]:
    """Return a score and its components for JSON."""
    weights = mixture.weights(step)
    names = ("value", "outcome", "detail", "extras", "seconds")
    return {
        **show_fields(score, *names),
        "components": {
            name: {"weight": weights[name], **show_fields(part, *names)}
            for name, part in score.parts.items()
            if name in weights
        },
    }


def explain_score(mixture: Mixture, score: Score, step: int) -> str:
    """Return a score with its explanation, as text."""
    head = f"{mixture.name}: {_value(score)}"
    weights = mixture.weights(step)
    lines = [head]
    if len(score.parts) == 1 and set(weights.values()) == {1.0}:
        lines += list(_explain(next(iter(score.parts.values())), "  "))
    else:
        for name, part in score.parts.items():
            product = "" if part.value is None else f" = {weights[name] * part.value:g}"
            lines.append(f"  {name}: {weights[name]:g} × {_value(part)}{product}")
            lines += _explain(part, "    ")
        if score.value is None:
            lines.append(f"  {score.detail}")
    return "\n".join(lines)


def _explain(score: Score, indent: str) -> Iterator[str]:
    if score.detail:
        yield f"{indent}{score.detail}"
    for name, value in score.extras.items():
        yield f"{indent}{name}: {value}"


def _value(score: Score) -> str:
    return score.outcome.value if score.value is None else f"{score.value:g}"


def _describe_component(component: Component) -> dict[str, Any]:
    reward: Any = component.reward
    function = function_of(reward)
    span = declared_range(reward)
    further = [f"`{one.__name__}`: {inspect.getdoc(one)}" for one in getattr(reward, "documented_with", ())]
    documentation = "\n\n".join([inspect.getdoc(function) or "", *further])
    return {
        "name": component.name,
        "weight": component.weight if isinstance(component.weight, int | float) else str(component.weight),
        "kind": show_kind(component_kind(component)),
        "range": span and list(span),
        "reason": component.reason,
        "source": reward.describe(),
        "signature": _signature(function),
        "parameters": _parameters(function, getattr(reward, "args", {})),
        "documentation": documentation,
        "example": "\n".join(_example(documentation)),
    }


def _signature(function: Any) -> str:
    try:
        return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"
    except (TypeError, ValueError):
        return "unknown"


def _parameters(function: Any, args: dict[str, Any]) -> dict[str, str]:
    """Return parameter → description of the value that it receives."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    descriptions = {}
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            descriptions[f"**{name}"] = "all other values"
        elif name in args:
            descriptions[name] = f"{args[name]!r}, as set"
        elif name in _GIVEN:
            descriptions[name] = _GIVEN[name]
        else:
            default = "" if parameter.default is parameter.empty else f"; {parameter.default!r} if it is missing"
            descriptions[name] = f"the column `{name}`, or an argument of the configuration{default}"
    return descriptions


def _example(documentation: str) -> Iterator[str]:
    """Yield the lines of a docstring's first doctest."""
    has_call = False
    for line in documentation.splitlines():
        if line.startswith(">>>"):
            has_call = True
        elif not line.strip() and has_call:
            return
        if has_call:
            yield line
