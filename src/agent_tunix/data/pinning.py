"""Pinning of hub datasets to the exact revision with which a run starts."""

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
    """Return the configuration with each `data.revision` made exact: a commit, or a version on Kaggle.

    Other sources have no revisions. Nothing is pinned if `training.train_data_dir` or `test_data_dir` is set: these may
    name other datasets, and one revision cannot apply to several.

    `recorded`: Configuration with which a resumed run started. Its revisions are kept if `config` allows them.
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
    """Return the exact revision of one set; for a source without revisions, the configured value."""
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
