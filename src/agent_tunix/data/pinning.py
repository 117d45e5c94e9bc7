"""Datasets of a hub whose state may move on, named by the state that a run was started with."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config, DataConfig
from agent_tunix.data.sources import find_source
from agent_tunix.data.sources.remote import find_place
from agent_tunix.hubs import huggingface, kaggle

_EXACT = {"huggingface": re.compile(r"[0-9a-f]{40}"), "kaggle": re.compile(r"\d+")}


def pin_data(config: Config, recorded: Config | None = None) -> Config:
    """The configuration whose `data.revision` means the same rows for ever: a commit, or a version of Kaggle.

    Other sources have no revisions. Where `training.train_data_dir` or `test_data_dir` name datasets of their own,
    nothing is pinned: one revision cannot be that of several.

    Args:
        config: As the user gave it.
        recorded: As a run that goes on was started; its revisions are kept where `config` may mean them.

    Raises:
        DataError: The hub cannot be asked, or has no such dataset.
    """
    if config.training.train_data_dir is not None or config.training.test_data_dir is not None:
        return config
    before = data_sets(recorded) if recorded is not None else {}
    mixture: dict[str, Any] = {}
    for name, one in data_sets(config).items():
        entry: Mapping[str, Any] = config.data.mixture[name]
        revision = _pin(one.config, before[name].config.data if name in before else None)
        mixture[name] = dict(entry) if revision is None else {**entry, "revision": revision}
    revision = config.data.revision if mixture else _pin(config, recorded.data if recorded is not None else None)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, mixture=mixture, revision=revision))


def _pin(config: Config, recorded: DataConfig | None) -> str | None:
    """The exact revision of one set; what it has where its source knows none."""
    source = find_source(config, "train")
    if source not in _EXACT:
        return config.data.revision
    place = find_place(config, "train", source)
    exact = _EXACT[source]
    if (place.revision and exact.fullmatch(place.revision)) or Path(place.name).expanduser().is_dir():
        return place.revision
    if recorded is not None and recorded.path == config.data.path and exact.fullmatch(recorded.revision or ""):
        return recorded.revision
    if source == "huggingface":
        return huggingface.resolve(place.request, place.name, place.revision, "dataset").sha
    return kaggle.download(place.request, place.name, "dataset").name
