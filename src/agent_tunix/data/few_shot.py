"""Worked examples drawn from the training rows, which are then excluded from training and evaluation."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.examples import WORKED_SOLUTION, Example
from agent_tunix.data.messages import read_template
from agent_tunix.errors import ConfigError, DataError


def draw_few_shot(prompt: PromptConfig, examples: Sequence[Example], seed: int) -> PromptConfig:
    """Return the configuration with `prompt.num_few_shot` training rows drawn and added to `prompt.few_shot`.

    A hash of each distinct problem's text and the seed decides which rows are drawn. Reordering the rows or adding a
    few does not change them.

    Raises:
        ConfigError: A row holds a conversation, which has no question and answer to show.
        DataError: There are too few distinct problems.
    """
    if prompt.num_few_shot == 0:
        return prompt
    by_problem: dict[str, Example] = {}
    for example in examples:
        if example.messages is not None:
            raise ConfigError(
                "prompt.num_few_shot requires rows with questions and answers, but the rows contain conversations; "
                "set it to 0 and write worked examples in prompt.few_shot",
                code="conversation_rows",
            )
        by_problem.setdefault(example.prompt.strip(), example)
    if len(by_problem) <= prompt.num_few_shot:
        raise DataError(
            f"prompt.num_few_shot={prompt.num_few_shot} leaves no training problem, because there are "
            f"{len(by_problem)} different ones; set it below {len(by_problem)}",
            code="too_few_problems",
        )
    chosen = sorted(by_problem, key=lambda problem: _rank(problem, seed))[: prompt.num_few_shot]
    drawn = [_as_shot(prompt, by_problem[problem]) for problem in chosen]
    return dataclasses.replace(prompt, few_shot=[*prompt.few_shot, *drawn], num_few_shot=0)


def shown_problems(prompt: PromptConfig) -> set[str]:
    """Return the problems of the worked examples, which are not used for training or evaluation."""
    texts = (shot.get("prompt", shot.get("question")) for shot in prompt.few_shot)
    return {str(text).strip() for text in texts if text is not None}


def _as_shot(prompt: PromptConfig, example: Example) -> dict[str, Any]:
    """Return the columns that a worked example needs, so that the run's config.yaml can reproduce it alone."""
    names = [name for _, name in read_template(prompt.template)] if prompt.template is not None else []
    shot = {name: example.columns[name] for name in names if name is not None and name in example.columns}
    for name in (WORKED_SOLUTION, "solution", "answer"):
        if name in example.columns:
            shot[name] = example.columns[name]
    # A configuration cannot hold dates and similar values; a prompt shows them as text anyway.
    plain: dict[str, Any] = json.loads(json.dumps({**shot, "prompt": example.prompt.strip()}, default=str))
    return plain


def _rank(problem: str, seed: int) -> bytes:
    salt = b"few-shot" + seed.to_bytes(8, "big")
    return hashlib.blake2b(problem.encode("utf-8"), digest_size=16, salt=salt).digest()
