"""The arguments of a reward model, checked without torch and without the network."""

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from agent_tunix.errors import RewardError
from agent_tunix.rewards.configured.arguments import Count, Index, RewardArguments, Seconds, Text, read_arguments

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


class ModelSettings(RewardArguments):
    """Arguments of a reward model.

    Attributes:
        path: A directory saved by transformers, or the id of a model on the Hugging Face hub. Required.
        revision: Branch, tag or commit of a model on the hub; null for its main branch.
        max_length: Longest text in tokens; null for what the model takes.
        over_long: Outcome of a longer text, which is never cut. `error` leaves the completion unscored,
            `not_applicable` is neutral within its group.
        batch_size: Texts scored at once; always 1 if the tokenizer has no padding token.
        activation: Applied to the model's output: `none`, `sigmoid`, or `softmax` over all outputs.
        label_index: Index of the output that is the reward; null if there is only one.
        prompt: `with`: the conversation in the model's chat template, or without a template the prompt and the response
            on separate lines. `without`: only the response. `pair`: both as two segments.
        system: True to show the conversation's system message; some chat templates refuse one.
        device: Device of the model, as torch names it: `cpu`, `cuda`, `cuda:1`.
        dtype: Type of the weights: float32, bfloat16 or float16.
        timeout_s: Longest wall time for a batch of `batch_size` texts. Then the process is killed and started again.
        start_timeout_s: Longest wall time for loading the model, including its download.
        python: A Python that has torch and transformers, such as `.venv-torch/bin/python`; null for this one.
    """

    path: Annotated[Text, AfterValidator(os.path.expanduser)]
    revision: str | None = None
    max_length: Count | None = None
    over_long: Literal["error", "not_applicable"] = "error"
    batch_size: Count = 16
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    label_index: Index | None = None
    prompt: Literal["with", "without", "pair"] = "with"
    system: bool = True
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    timeout_s: Seconds = 60.0
    start_timeout_s: Seconds = 600.0
    python: str | None = None

    @property
    def is_local(self) -> bool:
        """True if the model is a local directory."""
        return Path(self.path).is_dir()


def read_settings(name: str, args: Mapping[str, Any]) -> ModelSettings:
    """Return the settings of a reward model from its arguments. Errors show the reward's `name`.

    Raises:
        RewardError: An argument is unknown, missing or malformed, or the model or torch is missing.
    """
    settings = read_arguments(ModelSettings, name, args)
    _check_model(name, settings)
    _check_python(name, settings)
    return settings


def _check_model(name: str, settings: ModelSettings) -> None:
    """Check that the model is a directory with a config.json, or may be on the hub."""
    directory = Path(settings.path)
    if not settings.is_local:
        if directory.exists() or not _HUB_ID.fullmatch(settings.path):
            raise RewardError(
                f"reward {name!r}: path={settings.path} must be a directory that transformers saved, or a model on "
                "the Hugging Face hub as `owner/name`, but there is no such directory",
                code="invalid_reward_model",
            )
        return
    config = directory / "config.json"
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RewardError(
            f"reward {name!r}: {config} cannot be read ({error}); check that {directory} is a model",
            code="invalid_reward_model",
        ) from error
    names = values.get("architectures") or [] if isinstance(values, dict) else []
    if names and not any("SequenceClassification" in str(architecture) for architecture in names):
        raise RewardError(
            f"reward {name!r}: {directory} must be a …ForSequenceClassification model, but is "
            f"{', '.join(map(str, names))}, which gives no score",
            code="invalid_reward_model",
        )


def _check_python(name: str, settings: ModelSettings) -> None:
    if settings.python is not None:
        if shutil.which(settings.python) is None:
            raise RewardError(
                f"reward {name!r}: python={settings.python} must be an executable Python, but is not",
                code="invalid_reward_model",
            )
        return
    missing = [module for module in ("torch", "transformers") if importlib.util.find_spec(module) is None]
    if missing:
        raise RewardError(
            f"reward {name!r} requires {' and '.join(missing)}; run `pip install agent_tunix[reward_model]`, or "
            "install them in another environment and set the argument `python` to the path of its Python interpreter",
            code="missing_package",
        )
