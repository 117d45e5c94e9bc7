from typing import Any

import pytest

from agent_tunix.service.inspector.showing import TextPiece, answer_span, pieces, place_of, show


@pytest.mark.parametrize(
    ("response", "marked"),
    [
        ("<answer>7</answer>", "<answer>[7]</answer>"),
        ("7 and <answer> 7 </answer>, so it is 7", "7 and <answer> [7] </answer>, so it is 7"),
        ("<answer>1</answer><answer>2</answer>", "<answer>1</answer><answer>[2]</answer>"),
        (r"<answer>\boxed{7}</answer>", r"<answer>\boxed{[7]}</answer>"),
        (r"7, \boxed{7}, and 7", r"7, \boxed{[7]}, and 7"),
        (r"\boxed{ \frac{1}{2} }", r"\boxed{ [\frac{1}{2}] }"),
        ("3\n#### 18\nthat is 18", "3\n#### [18]\nthat is 18"),
        ("The answer is 18, for 3 + 15 is 18.", "The answer is 18, for 3 + 15 is [18]."),
        ("it is 12", "it is [12]"),
        ("<think>5</think> it is 6", "<think>5</think> it is [6]"),
        ("no number", "no number"),
        ("<answer></answer>", "<answer></answer>"),
        ("", ""),
    ],
)
def test_the_answer_is_marked_where_it_was_found(response: str, marked: str) -> None:
    span = answer_span(response)
    shown = response if span is None else f"{response[: span[0]]}[{response[slice(*span)]}]{response[span[1] :]}"
    assert shown == marked


def test_the_pieces_are_the_whole_response_in_order() -> None:
    for text in ("", "x", "aXbxc <answer>x7x</answer> x", "x" * 1000, "\ud800 7", "<b>7</b>"):
        for query in ("", "x", "7", "<", ".*", "\ud800"):
            assert "".join(piece.text for piece in pieces(text, query)) == text


def test_hits_are_marked_whatever_their_case_and_the_answer_before_them() -> None:
    assert list(pieces("Ab ab <answer>ab</answer>", "AB")) == [
        TextPiece("Ab", "hit"),
        TextPiece(" "),
        TextPiece("ab", "hit"),
        TextPiece(" <answer>"),
        TextPiece("ab", "answer"),
        TextPiece("</answer>"),
    ]


@pytest.mark.parametrize(
    ("name", "place"), [("4_1_2", (4, 1)), ("x", None), ("1_2", None), ("1_2_3_4", None), ("", None)]
)
def test_an_id_names_a_step_and_a_group(name: str, place: tuple[int, int] | None) -> None:
    assert place_of(name) == place


def row(**changed: Any) -> dict[str, Any]:
    part = {"name": "correct", "value": 1.0, "outcome": "scored", "detail": "equal", "weight": 1.0, "weighed": 1.0}
    plain = {
        "rollout_id": "1_0_0",
        "prompt": "2 + 2?",
        "response": "4",
        "columns": '{"answer": "4"}',
        "extras": "{}",
        "logged": "{}",
        "components": [part | {"gate_shut": False, "term_detail": ""}],
    }
    return plain | changed


def test_logs_and_extras_are_shown_with_their_component_or_else_the_reward() -> None:
    logged = '{"correct": {"text": "looked at it", "metrics": {"calls": 2}}}'
    shown = show(row(logged=logged, extras='{"correct": {"why": "so"}, "note": 1}'), 100)
    (part,) = shown.parts
    assert part.log == "looked at it"
    assert '"calls": 2' in part.more
    assert '"why": "so"' in part.more
    assert '"note"' in shown.more


def test_a_long_response_is_shown_by_its_ends() -> None:
    shown = show(row(response="a" * 500 + "<answer>7</answer>"), 100)
    text = "".join(piece.text for piece in shown.response)
    assert "characters omitted" in text
    assert [piece.text for piece in shown.response if piece.kind == "answer"] == ["7"]
