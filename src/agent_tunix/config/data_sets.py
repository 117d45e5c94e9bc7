"""Sets of `data.mixture`. Each has its own configuration: the keys of `data`, with the set's values in their place."""

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config, CurriculumConfig, DataConfig

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Keys of the whole mixture.
_SHARED_KEYS = ("mixture", "streaming", "sampling", "set_shares", "pass_at")
# Keys of an entry of `data.tasks` besides the task's own parameters.
TASK_KEYS = ("size", "seed", "levels")


@dataclasses.dataclass(frozen=True, slots=True)
class DataSet:
    """One set of a mixture."""

    weight: float  # share of the draws before normalisation, above 0
    config: Config  # the run's configuration with the set's own `data` in place of the mixture


def data_sets(config: Config) -> dict[str, DataSet]:
    """Return the sets of `data.mixture` by name; empty if the run has only one set, which has no name.

    The configuration must have passed `checks.check`.
    """
    return {name: _data_set(config, entry) for name, entry in config.data.mixture.items()}


def _data_set(config: Config, entry: Mapping[str, Any]) -> DataSet:
    own = {key: value for key, value in entry.items() if key != "weight"}
    if "curriculum" in own:
        own["curriculum"] = dataclasses.replace(config.data.curriculum, **own["curriculum"])
    data = dataclasses.replace(config.data, mixture={}, **own)
    return DataSet(float(entry.get("weight", 1.0)), dataclasses.replace(config, data=data))


def pass_rate_key(data: DataConfig) -> str | None:
    """Return the key by which the rows of a step depend on pass rates; None if they do not."""
    if data.sampling == "pass_rate":
        return "data.sampling"
    return "data.set_shares" if data.set_shares == "pass_rate" else None


def data_name(config: Config) -> str:
    """Return the data's name for reports: `data.name`, or else the sets of a mixture, the file, or `data.problems`."""
    data = config.data
    path = config.training.train_data_dir or data.path
    if data.name is not None or not (data.mixture or path):
        return data.name or data.problems
    return " + ".join(data.mixture) or Path(path or "").name


def mixture_problems(config: Config) -> Iterator[str]:
    """Yield a line for each error in `data.mixture`; none if `data_sets` can read it."""
    if not config.data.mixture:
        return
    for key in ("data_source", "train_data_dir"):
        if getattr(config.training, key) is not None:
            yield (
                f"training.{key} must be null with data.mixture, which has several sets; set the path of each set in "
                "data.mixture"
            )
    for name, entry in config.data.mixture.items():
        yield from _entry_problems(str(name), entry)


def data_problems(data: DataConfig, prefix: str, *, streaming: bool) -> Iterator[str]:
    """Yield a line for each invalid value of one set, apart from the ranges of single keys.

    `prefix` precedes keys in messages: `data.` or `data.mixture.NAME.`. `streaming` is true if rows are read as needed.
    """
    for name, settings in data.tasks.items():
        yield from _task_problems(f"{prefix}tasks.{name}", settings)
    curriculum = data.curriculum
    at = f"{prefix}curriculum"
    if len(set(map(str, curriculum.order))) < len(curriculum.order):
        yield f"{at}.order must name each value once, from easy to hard, not {curriculum.order}"
    if curriculum.column is not None and (key := pass_rate_key(data)):
        yield f"{at}.column must be null with {key}=pass_rate, which orders the rows itself; remove one of them"
    if curriculum.column is not None and streaming:
        yield (
            f"{at}.column={curriculum.column} requires all rows in memory to sort them, but data.streaming=true; set "
            "data.streaming=false, or remove the curriculum"
        )


def _task_problems(where: str, settings: object) -> Iterator[str]:
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        yield f"{where} must be a mapping {{size: …, seed: …}} or null, not {settings!r}"
        return
    for key, least in (("size", 1), ("seed", 0)):
        if key in settings and not (_fits(settings[key], int) and settings[key] >= least):
            yield f"{where}.{key} must be an integer of at least {least}, not {settings[key]!r}"
    levels = settings.get("levels", [0])
    if not (isinstance(levels, list) and levels and all(_fits(level, int) and level >= 0 for level in levels)):
        yield f"{where}.levels must be a list of integers of at least 0, not {levels!r}; for example [0, 1, 2]"


def _entry_problems(name: str, entry: object) -> Iterator[str]:
    where = f"data.mixture.{name}"
    if not _NAME.fullmatch(name):
        yield f"{where}: the name of a set must consist of letters, digits, `_`, `.` and `-`, not {name!r}"
    if not isinstance(entry, Mapping):
        yield f"{where} must be a mapping {{weight: …, path: …}}, not {entry!r}"
        return
    weight = entry.get("weight", 1.0)
    if not _fits(weight, float) or not (0.0 < weight < math.inf):
        yield f"{where}.weight must be a number above 0, not {weight!r}; to draw nothing from a set, remove it"
    yield from _key_problems(where, {key: value for key, value in entry.items() if key != "weight"}, DataConfig)


def _key_problems(where: str, values: Mapping[str, Any], schema: type) -> Iterator[str]:
    hints = typing.get_type_hints(schema)
    for key, value in values.items():
        if key in _SHARED_KEYS:
            yield f"{where}.{key} cannot be set for one set; set data.{key} for the whole mixture"
        elif key not in hints:
            near = difflib.get_close_matches(str(key), [*hints, "weight"], n=1)
            yield f"there is no key {where}.{key}" + (f"; did you mean {where}.{near[0]}?" if near else "")
        elif hints[key] is CurriculumConfig and isinstance(value, Mapping):
            yield from _key_problems(f"{where}.{key}", value, CurriculumConfig)
        elif not _fits(value, hints[key]):
            yield f"{where}.{key} must be {_describe(hints[key])}, not {value!r}"


def _fits(value: object, hint: Any) -> bool:
    """Return True if a value has the type that the schema gives a key."""
    if hint is Any:
        return True
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        return isinstance(value, Mapping) and all(_fits(item, arguments[1]) for item in value.values())
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_describe(choice) for choice in typing.get_args(hint))
    names = {str: "text", int: "an integer", float: "a number", bool: "true or false", types.NoneType: "null"}
    if hint is CurriculumConfig or typing.get_origin(hint) is dict:
        return "a mapping"
    return names.get(hint, "a list")
