"""Verdicts: the JSON that a judge must return, and its extraction from a reply."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.rewards.judges.faults import MalformedVerdict
from agent_tunix.rewards.judges.rubric import normalise_label

LONGEST_REPLY = 65_536
MOST_BRACES = 2_000
LONGEST_REASON = 1_000

_THOUGHT_BEGINS, _THOUGHT_ENDS = re.compile(r"<think(?:ing)?>"), re.compile(r"</think(?:ing)?>")


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """Verdict and reason for each field of the form."""

    labels: Mapping[str, str]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """Required content of a verdict: the allowed verdicts of each field."""

    fields: Mapping[str, Sequence[str]]

    def schema(self) -> dict[str, Any]:
        """Return the form as a JSON schema that endpoints accept as strict."""
        properties: dict[str, Any] = {"id": {"type": "string"}}
        for name, labels in self.fields.items():
            properties[name] = _object(
                {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": list(labels)}}
            )
        return _object(properties)

    def read(self, reply: str, code: str) -> JudgeVerdict:
        """Find the verdict in a judge's reply.

        Args:
            reply: A JSON object, or a text that contains one. Text around the object is ignored.
            code: Required `id` of the verdict. An object without it, for instance one quoted from the completion, is
                not a verdict. If several objects have it, the last one counts.

        Raises:
            MalformedVerdict: There is no verdict.
        """
        if len(reply) > LONGEST_REPLY:
            raise MalformedVerdict(f"the reply must have at most {LONGEST_REPLY} characters, not {len(reply)}")
        objects = objects_in(reply)
        if not objects:
            raise MalformedVerdict(f"the judge's reply contains no JSON object: {_shorten(reply)}")
        own = [found for found in objects if str(found.get("id", "")).strip() == code]
        if not own:
            raise MalformedVerdict(f"the judge's reply has no verdict with the requested id: {_shorten(reply)}")
        return self._verdict(own[-1])

    def _verdict(self, found: Mapping[str, Any]) -> JudgeVerdict:
        labels: dict[str, str] = {}
        reasons: dict[str, str] = {}
        for name, allowed in self.fields.items():
            given = found.get(name)
            label = given.get("verdict") if isinstance(given, Mapping) else given
            if not isinstance(label, str | int | float) or normalise_label(label) not in allowed:
                shown = _shorten(json.dumps(label))
                raise MalformedVerdict(f"the verdict on {name!r} must be one of {', '.join(allowed)}, not {shown}")
            labels[name] = normalise_label(label)
            reason = given.get("reason", "") if isinstance(given, Mapping) else ""
            reasons[name] = str(reason)[:LONGEST_REASON].encode("utf-8", "replace").decode()
        return JudgeVerdict(labels, reasons)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def objects_in(reply: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a reply, in order, without the model's `<think>` blocks."""
    text = _without_thoughts(reply[:LONGEST_REPLY])
    decoder = json.JSONDecoder()
    objects = []
    start = text.find("{")
    for _ in range(MOST_BRACES):  # limited, because each may take time proportional to the reply's depth
        if start < 0:
            break
        try:
            found, end = decoder.raw_decode(text, start)
            objects.append(found)
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return objects


def _without_thoughts(text: str) -> str:
    """Return the text without closed `<think>` blocks, in linear time: a lazy pattern would be quadratic."""
    kept, place = [], 0
    while (begin := _THOUGHT_BEGINS.search(text, place)) and (end := _THOUGHT_ENDS.search(text, begin.end())):
        kept.append(text[place : begin.start()])
        place = end.end()
    return "".join([*kept, text[place:]])


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 200 else text[:200] + "…")
