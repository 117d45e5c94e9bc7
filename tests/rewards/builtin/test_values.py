"""Tables of what each built-in reward pays for a response. The reference is 4 where a row gives none."""

from typing import Any

import pytest

from agent_tunix.rewards import Outcome
from agent_tunix.rewards.builtin.correctness import normal_text
from tests.rewards.builtin.cases import FULL, score

WRONG = FULL.replace("4<", "9<")
TAGS = "<reasoning></reasoning><answer></answer>"
THOUGHT = "<think>2 + 2</think><answer>4</answer>"

# Reward → value → responses that earn it.
VALUES: dict[str, dict[float, list[str]]] = {
    "check_numbers": {1.5: ["4", "4.00", "<answer>4</answer>"], 0.0: ["4.1", "-4", ""]},
    "format": {
        1.0: [FULL, "\n<reasoning>\n2 + 2\n</reasoning>\n<answer>\n4\n</answer>\n"],
        0.8: ["Sure! " + FULL, FULL + " Bye.", "<reasoning>2 + 2</reasoning> so <answer>4</answer>"],
        0.7: ["<reasoning>2 + 2</reasoning><answer> </answer>", TAGS],
        0.5: ["Sure! " + TAGS],
        0.25: ["<answer>4</answer><reasoning>2 + 2</reasoning>", "<answer>4</answer>"],
        0.375: ["<reasoning>2 + 2<answer>4</answer></reasoning>", "<reasoning>2 + 2<answer>4</answer>"],
        0.125: ["<reasoning>2 + 2", "<answer>" * 5 + "4</answer>"],
        0.0: ["", "4", FULL * 2, TAGS * 100, "<ANSWER>4</ANSWER>"],
    },
    "format_and_content": {
        1.0: [FULL],
        0.8: ["Sure! " + FULL],
        0.0: [
            *(FULL.replace("4</answer>", "5</answer>"), "<answer>4</answer>"),
            *("<reasoning></reasoning><answer>4</answer>", "4"),
        ],
    },
    "match_format_exactly": {3.0: [FULL], 0.0: [FULL + ".", FULL * 2, ""]},
    "match_format_approximately": {
        2.0: [FULL],
        -2.0: [FULL * 2, ""],
        0.0: ["<answer>4</answer>", "</answer>4<answer>"],
    },
    "think_format": {
        1.0: [THOUGHT, "\n<think>\n2 + 2\n</think>\n4", "2 + 2</think>4"],
        0.0: [
            *("<think></think>4", "<think>2 + 2</think>", "<think>2 + 2", "<think>a</think>b</think>c"),
            *("<think><think>a</think>b", "so <think>a</think>b", ""),
        ],
    },
    "tag_count": {
        1.0: [THOUGHT, f" {THOUGHT}\n"],
        0.75: ["so " + THOUGHT, THOUGHT + "."],
        0.0: [THOUGHT * 2, "<think>" * 100, ""],
        0.25: ["<answer>4</answer><think>2</think>"],
    },
    "reasoning_tags": {
        1.0: [
            "<reasoning>2 + 2</reasoning><answer>4</answer>",
            "<reasoning><b>2</b> + 2</reasoning> so <answer>4</answer>",
        ],
        0.5: [
            *("<reasoning>2 + 2</reasoning>", "<reasoning>2 + 2</reasoning><answer></answer>"),
            *("<answer>4</answer><reasoning>2 + 2</reasoning>", "<reasoning>2</reasoning><answer>4</answer></answer>"),
            "<reasoning>a</reasoning>" * 2 + "<answer>4</answer>",
        ],
        0.0: ["<reasoning>2<answer>4</reasoning></answer>", "</reasoning><reasoning>", "<reasoning>" * 1000],
    },
    "step_format": {
        1.0: ["1. add\n2. multiply\n3. done", "First, add two.\nThen double it.\nFinally, stop."],
        1 / 3: ["Step 1: a\nStep 1: b\nStep 1: c", "- a\n- a\n- a"],
        0.0: ["1.\n2.\n3.", ""],
    },
    "multi_line": {1.0: ["a\nb\nc"], 0.0: ["a\na\na\n\n", ""]},
    "response_structure": {
        1.0: ["<reasoning>two and two make four</reasoning><answer>4</answer>"],
        0.7: [
            "#### 4",
            *("two and two make four, so #### 4\n" + "bla " * 50 + end for end in ("", "14")),
            *(f"two and two make four, so \\boxed{{4}}{' bla' * 50}{end}" for end in ("", " box", " 14", "\\boxed")),
            f"so two and two, the answer is 4.{' bla' * 50} answer",
            r"\boxed{4} one two three four five in a box",
            f"so two and two make four <answer>4</answer>{' bla' * 30} <answer> 4",
        ],
        0.0: ["two and two make 4"],
    },
    "conciseness": {
        0.7 + 0.3 * 0.99: ["4"],
        0.85: ["word " * 49 + "4"],
        0.7: ["word " * 99 + "4", "word " * 999 + "4"],
        0.5 * (0.7 + 0.3 * 0.99): ["4.2"],
        0.0: ["5", ""],
    },
    "response_length": {
        1.0: ["word " * 20, "word " * 300],
        0.5: ["word " * 10, "word " * 450],
        0.0: ["word " * 900, ""],
    },
    "ngram_repetition": {0.0: ["the cat and the dog", ""], -4 / 7: ["So it is so it is so it is"]},
    "language_consistency": {1.0: ["two and two", r"\alpha θ = `x` ```四```"], 0.0: ["дважды два", "42", ""]},
    "multi_aspect": {
        1.0: [FULL],
        0.5 + 0.1 + 0.15: ["4"],
        0.0: [""],
        0.1: ["5"],
        0.35: [WRONG],
        0.5 + 0.1 * (1 - 396 / 398) + 0.075: ["word " * 400 + "4"],
    },
    "shaped": {
        1.0: ["4", FULL],
        0.0: ["5", "sofa 5", "so so so so so so so so 5"],
        0.05: ["so it is 5", "FIRST 5"],
        0.1: [WRONG],
        0.95: ["a a a a a a a a 4"],
    },
    "diverse": {1.0: ["4", "a b c d e f 4"], 0.7 + 0.3 * 2 / 3: ["a a a a a 4"], 0.0: ["5", ""]},
}

# Reward → reference → value → responses that earn it.
REFERENCED: dict[str, dict[Any, dict[float, list[str]]]] = {
    "math": {
        "4": {
            1.0: ["<answer>4</answer>", "the answer is 4.", r"\boxed{4}", "#### 4"],
            0.0: [
                *("", "four", "1 2 3 4 5", "4 <answer>5</answer>", "<answer>3, 4, 5</answer>"),
                "<answer>1e999999999</answer>",
            ],
        },
        "0": {1.0: ["0", "0.00"], 0.0: ["1", "0.0000001"]},
        "-7": {1.0: ["-7"], 0.0: ["7"], 0.5: ["-7.5"]},
        "7": {0.0: ["-7"]},
        "5": {1.0: ["12-5"], 0.0: ["25"]},
        "5600": {1.0: ["5,600"]},
        "5,600": {1.0: ["5600"]},
        "1234.5": {1.0: ["$1,234.50"]},
        "1/2": {1.0: ["0.5"]},
        "50%": {1.0: ["50%"]},
        "3e4": {1.0: ["30000"]},
        "100": {0.5: ["110", "90"], 0.0: ["111"]},
    },
    "check_answer": {
        "4": {
            3.0: ["<answer>4</answer>"],
            1.5: ["<answer> 4\n</answer>", "<answer>4.0</answer>"],
            -1.0: ["<answer>-4</answer>"],
            -0.5: ["<answer>four</answer>", "<answer>3 or 4</answer>"],
            0.0: ["<answer></answer>", "4", "<answer>4", ""],
        },
        4: {3.0: ["<answer>4</answer>"]},
        "1,234": {3.0: ["<answer>1,234</answer>"]},
        "1234": {1.5: ["<answer>$1,234</answer>"]},
        "0": {3.0: ["<answer>0</answer>"], -1.0: ["<answer>0.1</answer>"]},
        "100": {
            0.5: ["<answer>109</answer>", "<answer>110</answer>"],
            0.25: ["<answer>111</answer>", "<answer>80</answer>"],
            -1.0: ["<answer>79</answer>"],
        },
        "-100": {0.5: ["<answer>-110</answer>"]},
    },
    "exact_match": {
        "eiffel tower": {1.0: ["The Eiffel Tower."]},
        "Eiffel Tower": {1.0: ["<answer>Eiffel Tower</answer> I think"], 0.0: ["Tower Eiffel", ""]},
        4: {1.0: ["4"]},
    },
    "f1": {"Eiffel Tower": {1.0: ["Eiffel Tower"], 0.4: ["tower tower tower"], 0.0: [""]}},
    "answer_correctness": {
        "1/2": {1.0: ["so #### 0.50"]},
        r"\text{Evelyn}": {1.0: [r"\boxed{\text{Evelyn}}"]},
        r"\sqrt{8}": {1.0: [r"<answer>2\sqrt{2}</answer>"]},
        "4": {0.0: ["<answer>4.2</answer>"]},
        "Evelyn": {0.0: ["Evelyn and Bob"]},
    },
    "overlap": {"opened in May": {1 / 3: ["it opened"], 0.0: [""]}},
}

# Reward, response, arguments, value.
WITH_ARGUMENTS: list[tuple[str, str, dict[str, Any], float]] = [
    *(("soft_overlong", "short", {"num_tokens": n}, v) for n, v in [(1, 0.0), (768, 0.0), (896, -0.5), (1024, -1.0)]),
    *(("soft_overlong", "short", {"num_tokens": n}, -1.0) for n in (1025, 10**6)),
    *(("curriculum", WRONG, {"step": step}, 1.0) for step in (0, 1, 999)),
    *(("curriculum", WRONG, {"step": step}, 0.3) for step in (1000, 4999)),
    *(("curriculum", WRONG, {"step": step}, 0.35) for step in (5000, 9999)),
    *(("curriculum", FULL, {"step": step}, 1.0) for step in (1, 1000, 5000)),
    ("curriculum", WRONG, {"step": 9, "format_until": 10, "correctness_until": 20}, 1.0),
    ("curriculum", WRONG, {"step": 10, "format_until": 10, "correctness_until": 20}, 0.3),
    ("curriculum", WRONG, {"step": 19, "format_until": 10, "correctness_until": 20}, 0.3),
    ("curriculum", WRONG, {"step": 20, "format_until": 10, "correctness_until": 20}, 0.35),
    ("conciseness", "word " * 9 + "4", {"limit": 10}, 0.7),
    ("language_consistency", "дважды два", {"language": "ru"}, 1.0),
    ("language_consistency", "二かけるに", {"language": "ja"}, 1.0),
    ("language_consistency", "人々のコーヒー", {"language": "ja"}, 1.0),
    ("language_consistency", "σ and ε", {}, 1.0),
    ("language_consistency", "σ και ε", {}, 0.0),
    ("reasoning_tags", THOUGHT, {"tags": "think,answer"}, 1.0),
    ("tag_count", THOUGHT.replace("think", "reasoning"), {"thinking": "reasoning"}, 1.0),
    ("multiple_choice", "Answer: H", {"answer": "H", "letters": "ABCDEFGH"}, 1.0),
    ("citations", "[Source: a] and [b]", {"sources": ["a", "b"]}, 1.0),
    ("citations", "[a, b]", {"sources": [{"id": "a"}, {"id": "b"}]}, 1.0),
    ("citations", "[Smith, 2020] and [a]", {"sources": ["Smith, 2020", "a"]}, 1.0),
    ("citations", "[a][c]", {"sources": ["a", "b"]}, 0.5),
    ("citations", "none", {"sources": ["a"]}, 0.0),
    ("citations", "".join(f"[{n}]" for n in range(100)), {"sources": ["1"]}, 2 / 101),
    ("multi_line", "a\nb", {"enough": 2}, 1.0),
]


@pytest.mark.parametrize(
    ("name", "response", "value"),
    [(name, response, value) for name, rows in VALUES.items() for value in rows for response in rows[value]],
)
def test_a_response_earns_its_value(name: str, response: str, value: float) -> None:
    assert score(name, response).value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "response", "answer", "value"),
    [
        (name, response, answer, value)
        for name, references in REFERENCED.items()
        for answer, rows in references.items()
        for value in rows
        for response in rows[value]
    ],
)
def test_a_response_earns_its_value_for_a_reference(name: str, response: str, answer: Any, value: float) -> None:
    assert score(name, response, answer).value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("name", "response", "args", "value"), WITH_ARGUMENTS)
def test_arguments_decide_what_a_response_earns(name: str, response: str, args: dict[str, Any], value: float) -> None:
    assert score(name, response, **args).value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("conciseness", {"limit": 0}),
        ("cosine_length", {"right_long": -0.9}),
        ("cosine_length", {"right_short": 2.0}),
        ("soft_overlong", {"buffer_tokens": 0}),
        ("soft_overlong", {"buffer_tokens": 9, "max_tokens": 8}),
        ("response_length", {"fewest": 9, "most": 8}),
        ("ngram_repetition", {"size": 0}),
        ("ngram_repetition", {"penalty": 2}),
        ("language_consistency", {"language": "klingon"}),
        ("step_format", {"enough": 0}),
        ("multi_line", {"enough": 1}),
        ("reasoning_tags", {"tags": " "}),
        ("reasoning_tags", {"tags": ",".join(map(str, range(101)))}),
        ("ngram_repetition", {"size": 101}),
    ],
)
def test_arguments_that_make_no_sense_are_errors(name: str, args: dict[str, Any]) -> None:
    assert score(name, "4", **args).outcome is Outcome.ERROR


NUMERIC = (
    *("math", "debug", "check_answer", "check_numbers", "format_and_content"),
    *("conciseness", "multi_aspect", "shaped", "diverse"),
)
BAD: list[tuple[tuple[str, ...], tuple[Any, ...]]] = [
    (NUMERIC, ("", " ", "n/a", None, [4])),
    (("exact_match", "f1", "answer_correctness", "overlap"), ("", " ", "?!", None, ["x"], True)),
    (("multiple_choice",), ("Paris", "", "F", None, 4)),
]


@pytest.mark.parametrize(
    ("name", "answer"), [(name, answer) for names, answers in BAD for name in names for answer in answers]
)
def test_a_bad_reference_is_never_a_score(name: str, answer: Any) -> None:
    result = score(name, "<answer>4</answer>", answer)
    assert (result.value, result.outcome) == (None, Outcome.BAD_REFERENCE)
    assert name not in NUMERIC or "is not a number" in result.detail


@pytest.mark.parametrize("sources", [[], None, 4, [None]])
def test_no_source_is_a_bad_reference(sources: Any) -> None:
    assert score("citations", "[a]", sources=sources).outcome is Outcome.BAD_REFERENCE


@pytest.mark.parametrize("name", ["format", "match_format_exactly", "match_format_approximately"])
def test_the_form_is_scored_whatever_the_reference(name: str) -> None:
    assert score(name, FULL, answer="").outcome is Outcome.SCORED


@pytest.mark.parametrize("name", ["conciseness", "multi_aspect"])
def test_a_correct_long_answer_beats_a_wrong_short_one(name: str) -> None:
    assert (score(name, "word " * 9999 + "4").value or 0) > (score(name, WRONG).value or 0)
    assert (score(name, "word " * 999 + "4").value or 0) > (score(name, "5").value or 0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("दान।", "दान", True),
        ("दिन", "दान", False),
        ("ไก่", "ไก", False),
        ("cafe\u0301 \u2764\ufe0f", "café", True),
        ("cafe\u0301", "cafe", False),
        ("α = 2", "β = 2", False),
        ("Größe = 2", "größe = 2", True),
    ],
)
def test_texts_of_any_script_keep_all_that_tells_words_apart(one: str, other: str, same: bool) -> None:
    assert (normal_text(one) == normal_text(other)) is same
