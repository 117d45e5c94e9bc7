import itertools

import pytest

from agent_tunix.rewards import Outcome, Sample, get_reward_function
from tests.rewards.builtin.cases import FULL, score

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def test_no_arrangement_of_tags_alone_passes_for_the_format() -> None:
    for first, second, repeats in itertools.product(TAGS, TAGS, (1, 2, 3)):
        assert (score("format", ("".join(TAGS) + first + second) * repeats).value or 0.0) < 0.8


@pytest.mark.parametrize(
    ("template", "response", "value"),
    [
        ("<think>{reasoning}</think>{answer}", "<think>2 + 2</think>4", 1.0),
        ("<think>{reasoning}</think>{answer}", "<think>2 + 2</think>", 0.7),
        ("<think>{reasoning}</think>{answer}", "4", 0.0),
        ("{reasoning}\nAnswer: {answer}", "2 + 2\nAnswer: 4", 1.0),
        ("", FULL, 1.0),
    ],
)
def test_format_follows_the_template_of_the_run(template: str, response: str, value: float) -> None:
    (result,) = get_reward_function("format").score([Sample(response, format=template)])
    assert result.value == value


@pytest.mark.parametrize("template", ["{answer}", "<a>{x}<a>"])
def test_a_template_without_tags_of_its_own_is_an_error(template: str) -> None:
    (result,) = get_reward_function("format").score([Sample("4", format=template)])
    assert result.outcome is Outcome.ERROR
    assert "prompt.format" in result.detail
