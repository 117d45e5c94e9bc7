import random

import pytest

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import draw_few_shot, few_shot_messages, shown_problems
from agent_tunix.errors import AgentTunixError
from tests.raising import raises

EXAMPLES = [
    Example(
        f"{n} + 1?", {"question": f"{n} + 1?", "answer": str(n + 1), "solution": f"{n} + 1 = {n + 1}", "unit": "m"}, n
    )
    for n in range(20)
]


def drawn(count: int, seed: int = 0, examples: list[Example] = EXAMPLES) -> PromptConfig:
    return draw_few_shot(PromptConfig(num_few_shot=count), examples, seed)


def test_as_many_as_asked_for_are_drawn_with_their_solutions() -> None:
    prompt = drawn(3)
    assert len(prompt.few_shot) == len(shown_problems(prompt)) == 3
    assert prompt.num_few_shot == 0
    question, response = few_shot_messages(prompt)[:2]
    number = int(question["content"].split()[0])
    assert response["content"] == f"<reasoning>{number} + 1 = {number + 1}</reasoning><answer>{number + 1}</answer>"


def test_the_draw_follows_the_seed_and_not_the_order_of_the_rows() -> None:
    shuffled = random.Random(1).sample(EXAMPLES, len(EXAMPLES))
    assert drawn(4, examples=shuffled).few_shot == drawn(4).few_shot
    assert drawn(4, seed=1).few_shot != drawn(4).few_shot


def test_more_examples_are_those_before_and_further_ones() -> None:
    assert drawn(5).few_shot[:3] == drawn(3).few_shot


def test_given_examples_come_first() -> None:
    given = {"prompt": "0 + 0?", "answer": "0"}
    prompt = draw_few_shot(PromptConfig(few_shot=[given], num_few_shot=2), EXAMPLES, 0)
    assert prompt.few_shot[0] == given
    assert len(prompt.few_shot) == 3
    assert "0 + 0?" in shown_problems(prompt)


def test_what_the_template_asks_for_is_kept() -> None:
    prompt = draw_few_shot(PromptConfig(num_few_shot=1, template="{question} in {unit}"), EXAMPLES, 0)
    assert few_shot_messages(prompt)[0]["content"].endswith("? in m")


def test_a_problem_that_occurs_twice_is_drawn_once() -> None:
    twice = [*EXAMPLES[:3], *EXAMPLES[:3]]
    assert len(shown_problems(drawn(2, examples=twice))) == 2


def test_drawing_nothing_changes_nothing() -> None:
    prompt = PromptConfig(few_shot=[{"prompt": "x", "answer": "y"}])
    assert draw_few_shot(prompt, [], 0) is prompt


TALK = [Example("x", {}, 1, ({"role": "user", "content": "x"},))]


@pytest.mark.parametrize(
    ("count", "examples", "code", "words"),
    [
        (3, EXAMPLES[:3], "no_rows", "set it below 3"),
        (1, TALK, "invalid_prompt", "write worked examples in prompt.few_shot"),
    ],
)
def test_what_cannot_be_drawn_from(count: int, examples: list[Example], code: str, words: str) -> None:
    with raises(AgentTunixError, code, words):
        drawn(count, examples=examples)
