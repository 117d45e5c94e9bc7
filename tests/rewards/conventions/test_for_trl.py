"""A reward of this package as a function that TRL calls; tests/rewards/conventions/test_in_trl.py trains with one."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from agent_tunix.rewards import Mixture, Sample, Score, resolve_reward, to_trl


def seen(response: str, prompt: str, unit: str, step: int, metadata: dict[str, object]) -> float:
    return float((response, prompt, unit, step) == ("4", "2 + 2?", "km", 3))


MESSAGES = [{"role": "user", "content": "2 + 2?"}], [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(("prompt", "completion"), [("2 + 2?", "4"), MESSAGES])
def test_a_function_gets_texts_columns_and_the_step(prompt: object, completion: object) -> None:
    reward = to_trl(resolve_reward(seen))
    state = SimpleNamespace(global_step=2, max_steps=9)
    assert reward(prompts=[prompt], completions=[completion], unit=["km"], trainer_state=state) == [1.0]
    assert reward.__name__ == "seen"


def test_a_completion_without_a_score_is_none_and_components_are_logged() -> None:
    mixture = resolve_reward({"correct": "math", "tags": {"function": "tag_count", "weight": 0.1}})
    logged: dict[str, float] = {}
    reward = to_trl(mixture)
    completions = ["<answer>4</answer>", "<answer>4</answer>"]
    values = reward(prompts=["a", "b"], completions=completions, answer=["4", "many"], log_metric=logged.__setitem__)
    assert values == [pytest.approx(1.05), None]
    assert logged == {"correct/mean": 1.0, "tags/mean": 0.5}


def test_completions_of_one_prompt_are_a_group() -> None:
    groups: list[int] = []

    class Recording(Mixture):
        def score(self, samples: Sequence[Sample], known: Any = None) -> list[Score]:
            groups.extend(sample.group_id for sample in samples)
            return super().score(samples, known)

    recording = Recording(list(resolve_reward("math").components))
    to_trl(recording)(prompts=["a", "a", "b", "b"], completions=["1"] * 4, answer=["1"] * 4)
    assert groups == [0, 0, 1, 1]
