"""Worked examples drawn from the training rows: which, and that no run learns from what it is shown."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import read_template
from agent_tunix.errors import ConfigError, DataError


def draw_few_shot(prompt: PromptConfig, examples: Sequence[Example], seed: int) -> PromptConfig:
    """The configuration with `prompt.num_few_shot` training rows as further `prompt.few_shot`, and none left to draw.

    Which rows they are is decided for each distinct problem by a hash of its text and the seed, so that neither the
    order of the rows nor a few new ones change them.

    Args:
        prompt: What is changed; it stays as it is.
        examples: The training rows, all of them.
        seed: The run's.

    Raises:
        ConfigError: The rows hold conversations, of which none is a question with an answer.
        DataError: There are too few different problems.
    """
    if prompt.num_few_shot == 0:
        return prompt
    by_problem: dict[str, Example] = {}
    for example in examples:
        if example.messages is not None:
            raise ConfigError(
                "prompt.num_few_shot draws questions with answers, but the rows hold conversations; set it to 0 and"
                " give worked examples in prompt.few_shot",
                code="conversation_rows",
            )
        by_problem.setdefault(example.prompt.strip(), example)
    if len(by_problem) <= prompt.num_few_shot:
        raise DataError(
            f"prompt.num_few_shot={prompt.num_few_shot} leaves none of the {len(by_problem)} different training"
            f" problems to train on; set it below {len(by_problem)}",
            code="too_few_problems",
        )
    chosen = sorted(by_problem, key=lambda problem: _rank(problem, seed))[: prompt.num_few_shot]
    drawn = [_as_shot(prompt, by_problem[problem]) for problem in chosen]
    return dataclasses.replace(prompt, few_shot=[*prompt.few_shot, *drawn], num_few_shot=0)


def shown_problems(prompt: PromptConfig) -> set[str]:
    """The problems of the worked examples, which are neither trained on nor asked in an evaluation."""
    texts = (shot.get("prompt", shot.get("question")) for shot in prompt.few_shot)
    return {str(text).strip() for text in texts if text is not None}


def _as_shot(prompt: PromptConfig, example: Example) -> dict[str, Any]:
    """What a worked example needs of a row, so that the run's own config.yaml is enough to show it again."""
    names = [name for _, name in read_template(prompt.template)] if prompt.template is not None else []
    shot = {name: example.columns[name] for name in names if name is not None and name in example.columns}
    for name in ("solution", "answer"):
        if name in example.columns:
            shot[name] = example.columns[name]
    # A configuration holds no dates and the like; a prompt writes them as text anyway.
    plain: dict[str, Any] = json.loads(json.dumps({**shot, "prompt": example.prompt.strip()}, default=str))
    return plain


def _rank(problem: str, seed: int) -> bytes:
    salt = b"few-shot" + seed.to_bytes(8, "big")
    return hashlib.blake2b(problem.encode("utf-8"), digest_size=16, salt=salt).digest()
