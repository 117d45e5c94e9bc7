"""Rewards that become stricter as training proceeds."""

from typing import Any

from agent_tunix.rewards.builtin.correctness import grade_answer
from agent_tunix.rewards.builtin.form import DEFAULT_TEMPLATE, grade_format
from agent_tunix.rewards.builtin.quality import multi_aspect_reward
from agent_tunix.rewards.sample import Score


def curriculum_reward(
    response: str,
    answer: Any,
    step: int,
    format: str = DEFAULT_TEMPLATE,
    format_until: int = 1000,
    correctness_until: int = 5000,
) -> Score:
    """Score the format first, then format and answer, then all aspects. Range [0, 1].

    - before step `format_until`: `format`
    - before step `correctness_until`: 0.3 × `format` + 0.7 × `math`
    - from then on: `multi_aspect`

    >>> score = get_reward_function("curriculum")
    >>> response = "<reasoning>2 + 2 = 5</reasoning><answer>9</answer>"
    >>> [round(score(response, answer="4", step=step), 2) for step in (999, 1000, 5000)]
    [1.0, 0.3, 0.35]
    """
    if step >= correctness_until:
        whole = multi_aspect_reward(response, answer)
        return Score(whole.value, detail=f"step {step}, all aspects: {whole.detail}")
    form, form_detail = grade_format(response, format)
    if step < format_until:
        return Score(form, detail=f"step {step}, format only: {form_detail}")
    content, content_detail = grade_answer(response, answer)
    return Score(
        0.3 * form + 0.7 * content,
        detail=f"step {step}, format {form} ({form_detail}), correctness {content} ({content_detail})",
    )
