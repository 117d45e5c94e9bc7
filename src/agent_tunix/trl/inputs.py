"""Datasets, tokenizers and reward functions of a `GRPOTrainer`, as a run of this package takes them."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.errors import ConfigError, DataError
from agent_tunix.rewards import list_reward_functions, register_reward_function
from agent_tunix.rewards.registry import is_shipped
from agent_tunix.trl.config import refuse

# Writes the prompt as it is, as TRL does with prompts that are no conversations.
_RAW = "{% for message in messages %}{{ message.content }}{% endfor %}"
# The row of an environment that makes its own prompt: what its `reset` returns.
NO_PROMPT = {"prompt": [{"role": "user", "content": ""}]}
_MODALITIES = ("image", "images", "video", "videos")


def read_rows(
    dataset: Any, name: str, *, only_prompt: bool = False, has_environment: bool = False, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a dataset. Without a column `prompt`, the environment makes the prompts.

    Args:
        dataset: A `datasets.Dataset`, or rows.
        name: Name of the argument, for errors.
        only_prompt: Leave out all other columns.
        has_environment: True if there is an environment.
        limit: Rows to read of an iterable dataset; None if their number is unknown.

    Raises:
        ConfigError: It is a stream of unknown length, or has images.
        DataError: It has no rows, or no column `prompt`.
    """
    if isinstance(dataset, Mapping):
        splits = ", ".join(map(repr, dataset))
        refuse(name, f"{type(dataset).__name__} of {splits}", "is several datasets", "pass one of them")
    if isinstance(dataset, str):
        raise ConfigError(f"{name} must be rows, not {dataset!r}; pass datasets.load_dataset({dataset!r}, split=…)")
    if not hasattr(dataset, "__len__"):
        if limit is None:
            refuse(
                name, type(dataset).__name__, "is read as training goes on", "set max_steps: rows are read before it"
            )
        dataset = itertools.islice(dataset, limit)
    rows = [dict(row) for row in dataset]
    columns = dict.fromkeys(column for row in rows for column in row)
    if found := [column for column in _MODALITIES if column in columns]:
        refuse(f"{name}[{found[0]!r}]", "…", "is seen by a vision-language model", "models read text alone")
    if has_environment and "prompt" not in columns:
        rows = [{**row, **NO_PROMPT} for row in rows]
    elif "prompt" not in columns:
        rows = []
    if not rows:
        raise DataError(
            f"{name} must have rows with a column 'prompt', but has {', '.join(columns) or 'none'}",
            code="missing_column",
        )
    return [{"prompt": row["prompt"]} for row in rows] if only_prompt else rows


def is_conversational(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if prompts are lists of messages, and False for texts."""
    return not isinstance(rows[0]["prompt"], str)


def as_conversations(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with each prompt as a conversation; a text is one message of the user, unchanged."""
    return [
        {
            **row,
            "prompt": [{"role": "user", "content": row["prompt"]}] if isinstance(row["prompt"], str) else row["prompt"],
        }
        for row in rows
    ]


def prompt_values(conversational: bool, tokenizer: Any, model: str | None) -> dict[str, Any]:
    """Return the keys of prompts: the chat template of `processing_class`, or none for prompts that are texts.

    Args:
        conversational: True if prompts are lists of messages.
        tokenizer: `processing_class`.
        model: Name of the model, whose tokenizer it must be; None if it goes with a model in memory.

    Raises:
        ConfigError: The tokenizer is another than the model's.
    """
    values: dict[str, Any] = {
        "data.prompt_column": "prompt",
        "data.answer_column": None,
        "data.max_row_bytes": 2**30,
        "data.empty_prompts": True,
        "prompt.system": None,
        "rewards.completions": "messages" if conversational else "text",
        "prompt.chat_template": None if conversational else _RAW,
    }
    own = getattr(tokenizer, "name_or_path", None)
    if own and model is not None and own.rstrip("/") != model.rstrip("/"):
        refuse("processing_class", own, "replaces the model's tokenizer", f"the tokenizer is that of model={model!r}")
    if conversational and isinstance(template := getattr(tokenizer, "chat_template", None), str):
        values["prompt.chat_template"] = template
    return values


def reward_components(
    functions: Any, weights: Sequence[float] | None, processing: Any, environments: Mapping[Any, Any]
) -> dict[str, dict[str, Any]]:
    """Return name → component of each reward function, in their order; then the score of the environment.

    Args:
        functions: A function, the name of a reward model, or a list of these.
        weights: Weights of the functions; None: 1.
        processing: `reward_processing_classes`.
        environments: Name → factory.

    Raises:
        ConfigError: A reward is a model in memory, the weights do not fit, or there is no reward.
    """
    listed = [] if functions is None else list(functions) if isinstance(functions, list | tuple) else [functions]
    if weights is not None and len(weights) != len(listed):
        raise ConfigError(
            f"reward_weights has {len(weights)} weights for {len(listed)} reward functions; give one each"
        )
    if any(one is not None for one in (processing if isinstance(processing, list | tuple) else [processing])):
        refuse(
            "reward_processing_classes", processing, "chooses tokenizers", "a reward model has its own; leave it None"
        )
    components: dict[str, dict[str, Any]] = {}
    for function, weight in zip(listed, weights or [1.0] * len(listed), strict=True):
        name = _free(_name(function), components)
        components[name] = {**_component(function, name), "weight": float(weight)}
    kinds = [one if isinstance(one, type) else type(one()) for one in environments.values()]
    scoring = [kind for kind in kinds if hasattr(kind, "get_reward")]
    if scoring:
        name = scoring[0].__name__ if len(set(scoring)) == 1 else "environment"
        components[_free(name, components)] = {"function": "environment", "weight": 1.0}
    if not components:
        raise ConfigError("reward_funcs must have a reward, unless the environment has get_reward; pass a function")
    return components


def _component(function: Any, name: str) -> dict[str, Any]:
    """Return the settings of a component; a function is registered under the name."""
    if hasattr(function, "state_dict"):
        path = getattr(getattr(function, "config", None), "_name_or_path", "")
        refuse("reward_funcs", type(function).__name__, "scores in memory", f"pass its name or directory: {path!r}")
    if not isinstance(function, str):
        name = f"my_{name}" if is_shipped(name) else name
        register_reward_function(name, function, overwrite=True, convention="trl")
        return {"function": name}
    if function in list_reward_functions():
        return {"function": function}
    return {"function": "reward_model", "args": {"path": function}}


def _name(function: Any) -> str:
    """Return the name that TRL logs, with other characters than those of names replaced."""
    inner = getattr(function, "func", function)  # of a partial
    name = function.split("/")[-1] if isinstance(function, str) else getattr(inner, "__name__", type(function).__name__)
    return re.sub(r"\W+", "_", name).strip("_") or "reward"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    return next(one for one in (name, *(f"{name}_{number}" for number in range(2, 1000))) if one not in taken)
