"""Layouts of rows that are read without configuration."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.examples import Row, find_column

_LOGGER = logging.getLogger("agent_tunix.data")

_VERL_PROMPT = "prompt"
_VERL_ANSWER = "reward_model.ground_truth"


def fit_layout(data: DataConfig, rows: Sequence[Row]) -> DataConfig:
    """Return the configuration with the columns of verl's layout, if the rows have it.

    verl's rows hold `data_source`, `prompt` and `reward_model.ground_truth`. A column that the configuration sets, or
    that the rows have under its default name, stays.

    `rows`: First rows, before columns are renamed.
    """
    if not rows or find_column(rows[0].columns, _VERL_ANSWER) is None:
        return data
    columns, default = rows[0].columns, DataConfig()
    found: dict[str, Any] = {}
    for key, name in (("prompt_column", _VERL_PROMPT), ("answer_column", _VERL_ANSWER)):
        configured = getattr(data, key)
        is_free = configured == getattr(default, key) and configured not in (*columns, *data.columns)
        if is_free and find_column(columns, name) is not None:
            found[key] = name
    if found:
        told = ", ".join(f"data.{key}={name}" for key, name in found.items())
        _LOGGER.info("the rows have verl's layout: %s", told)
    return dataclasses.replace(data, **found)
