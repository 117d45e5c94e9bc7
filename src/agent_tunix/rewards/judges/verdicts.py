"""Verdicts: the JSON that a judge must return, and its extraction from a reply."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.rewards.judges.faults import MalformedVerdict
from agent_tunix.rewards.judges.rubric import normalise_label

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


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
        text = {"type": "string"}
        findings = {
            name: _object({"reason": text, "verdict": {"type": "string", "enum": list(labels)}})
            for name, labels in self.fields.items()
        }
        return _object({"id": text, **findings})

    def read(self, reply: str, code: str) -> JudgeVerdict:
        """Find the verdict in a judge's reply.

        Args:
            reply: A JSON object, or a text that contains one. Text around the object is ignored.
            code: Required `id` of the verdict. An object without it, for instance one quoted from the completion, is
                not a verdict. If several objects have it, the last one counts.

        Raises:
            MalformedVerdict: There is no verdict.
        """
        verdicts = [item for item in objects_in(reply) if str(item.get("id", "")).strip() == code]
        if not verdicts:
            raise MalformedVerdict(f"the judge's reply has no verdict with the requested id: {reply[:200]!r}")
        labels: dict[str, str] = {}
        reasons: dict[str, str] = {}
        for name, allowed in self.fields.items():
            finding = verdicts[-1].get(name)
            finding = finding if isinstance(finding, dict) else {"verdict": finding}
            label = finding.get("verdict")
            if not isinstance(label, str | int | float) or normalise_label(label) not in allowed:
                raise MalformedVerdict(f"the verdict on {name!r} must be one of {', '.join(allowed)}, not {label!r}")
            labels[name] = normalise_label(label)
            reasons[name] = str(finding.get("reason", "")).encode("utf-8", "replace").decode()
        return JudgeVerdict(labels, reasons)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def objects_in(reply: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a reply, in order, without the model's `<think>` blocks."""
    text = _THOUGHT.sub("", reply)
    decoder = json.JSONDecoder()
    objects = []
    start = text.find("{")
    while start >= 0:
        try:
            item, end = decoder.raw_decode(text, start)
            objects.append(item)
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return objects
