"""Display of a stored completion, with the extracted answer marked and the results of rewards beside it."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_tunix.rewards.agent_calls import describe_calls
from agent_tunix.rewards.answers import Source, find_answer
from agent_tunix.tracking.report.conversation import ShownTurn, show_conversation
from agent_tunix.tracking.report.cutting import cut
from agent_tunix.tracking.rollouts.encoding import decode
from agent_tunix.tracking.rollouts.rows import restore_response

_LONGEST_NOTE = 4000
_MOST_HITS = 200
_ROLLOUT_ID = re.compile(r"(\d{1,9})_(\d{1,9})_(\d{1,9})")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Part of a text: the `answer` that verifiers extract, a search `hit`, or "" for neither."""

    text: str
    kind: Literal["", "answer", "hit"] = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Result of a reward component."""

    name: str
    value: float | None  # its raw value; None if there is none
    weight: float | None
    weighed: float | None  # the value that was weighted, after transforms and gates
    outcome: str | None  # outcome of computing it; None if a gate or a route skipped it
    is_shut: bool  # True if its gate was shut
    detail: str  # reason, for a person
    log: str  # text that it logged or printed
    more: str  # numbers it logged and its extras, as JSON; "" for none


@dataclass(frozen=True, slots=True)
class Shown:
    """Completion as a page shows it."""

    row: Mapping[str, Any]  # the columns of `SHOWN_IN_FULL`
    anchor: str  # id of its element in the page
    prompt: str
    reference: str | None  # the row's `answer`; None if it has none
    response: Sequence[TextPiece]
    # Turns of an episode, each with the pieces of its text; empty for a completion of one turn.
    turns: Sequence[tuple[ShownTurn, Sequence[TextPiece]]]
    fault: str  # description of the environment's fault; "" without one
    calls: str  # calls of an agent as a tree; "" without an agent
    found: str | None  # rule by which verifiers find an answer in it; None if they find none
    parts: Sequence[Part]
    more: str  # extras of the reward as a whole, as JSON; "" for none


def show(row: Mapping[str, Any], longest: int, query: str = "") -> Shown:
    """Return the display of a completion.

    Args:
        row: The columns of `SHOWN_IN_FULL`, of an episode also `EPISODE_COLUMNS`.
        longest: Maximum characters of a text; a longer one loses its middle.
        query: The text that was searched for.
    """
    columns, extras, logged = (json.loads(row[name]) for name in ("columns", "extras", "logged"))
    episode = decode(row["episode"]) if row.get("episode") else None
    names = [part["name"] for part in row["components"]]
    found = find_answer(row["response"])
    return Shown(
        row=row,
        anchor=anchor_of(row["rollout_id"]),
        prompt=cut(row["prompt"], longest),
        reference=_text(columns["answer"]) if "answer" in columns else None,
        response=list(pieces(cut(row["response"], longest), query)),
        turns=_turns(row, episode, longest, query) if episode else (),
        fault=cut(episode["error"], _LONGEST_NOTE) if episode else "",
        calls="\n".join(describe_calls(episode["agent"])) if episode and episode.get("agent") else "",
        found=found.source.value if found and found.text else None,
        parts=[_part(part, extras.get(part["name"]), logged.get(part["name"], {})) for part in row["components"]],
        more=_pretty({name: value for name, value in extras.items() if name not in names}),
    )


def _turns(
    row: Mapping[str, Any], episode: Mapping[str, Any], longest: int, query: str
) -> list[tuple[ShownTurn, list[TextPiece]]]:
    """Return the turns of an episode; the policy's last one is the response, which is searched and scored."""
    messages = restore_response(decode(row["messages"]), row["response"])
    turns = show_conversation(
        messages,
        episode["calls"],
        episode["num_prompt_messages"],
        longest,
        episode.get("unread_calls", ()),
        row.get("turn_advantages") or (),
    )
    last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=None)
    return [
        (turn, list(pieces(turn.text, query)) if number == last else [TextPiece(turn.text)])
        for number, turn in enumerate(turns)
    ]


def anchor_of(rollout_id: str) -> str:
    """Return the id of a completion's element, such as `r-1_2_3`."""
    return f"r-{rollout_id}" if _ROLLOUT_ID.fullmatch(rollout_id) else "r-"


def place_of(rollout_id: str) -> tuple[int, int] | None:
    """Return the step and group of a rollout id; None if it is invalid."""
    found = _ROLLOUT_ID.fullmatch(rollout_id)
    return (int(found[1]), int(found[2])) if found else None


def pieces(text: str, query: str = "") -> Iterator[TextPiece]:
    """Yield the pieces of a response: the answer that verifiers extract, search matches, and the text between them."""
    marks = [(start, end, "hit") for start, end in _hits(text, query)]
    answer = answer_span(text)
    if answer is not None:
        start, end = answer
        marks = [mark for mark in marks if mark[1] <= start or mark[0] >= end]
        marks = sorted([*marks, (start, end, "answer")])
    done = 0
    for start, end, kind in marks:
        if start > done:
            yield TextPiece(text[done:start])
        yield TextPiece(text[start:end], "answer" if kind == "answer" else "hit")
        done = end
    if done < len(text):
        yield TextPiece(text[done:])


def answer_span(response: str) -> tuple[int, int] | None:
    """Return the position of the answer that the built-in verifiers extract; None if they find none.

    >>> answer_span("<answer> 7 </answer> so it is 7")
    (9, 10)
    """
    found = find_answer(response)
    if found is None or not found.text:
        return None
    text = found.text
    if found.source is Source.TAGGED:
        start = response.rfind(text, 0, response.rindex("</answer>"))
    elif found.source is Source.HASHES:
        start = response.find(text, response.rindex("####"))
    elif found.source is Source.BOXED:
        start = max(response.rfind(f"{{{text}"), response.rfind(f"{{ {text}"))
        start = response.find(text, start)
    else:
        start = response.rfind(text)
    return None if start < 0 else (start, start + len(text))


def _hits(text: str, query: str) -> Iterable[tuple[int, int]]:
    if not query:
        return
    for match in itertools.islice(re.finditer(re.escape(query), text, re.IGNORECASE), _MOST_HITS):
        yield match.span()


def _part(stored: Mapping[str, Any], extras: Any, logged: Mapping[str, Any]) -> Part:
    said = {"metrics": logged["metrics"]} if logged.get("metrics") else {}
    if extras not in (None, {}):
        said["extras"] = extras
    details = dict.fromkeys(filter(None, (stored["detail"], stored["term_detail"])))
    return Part(
        name=stored["name"],
        value=stored["value"],
        weight=stored["weight"],
        weighed=stored["weighed"],
        outcome=stored["outcome"],
        is_shut=bool(stored["gate_shut"]),
        detail=cut("; ".join(details), _LONGEST_NOTE),
        log=cut(_text(logged.get("text", "")), _LONGEST_NOTE),
        more=_pretty(said),
    )


def _text(value: Any) -> str:
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONGEST_NOTE)


def _pretty(value: Mapping[str, Any]) -> str:
    return cut(json.dumps(value, indent=1, ensure_ascii=False), _LONGEST_NOTE) if value else ""
