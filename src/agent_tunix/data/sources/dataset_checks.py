"""Checks of datasets that somebody else made, before the library `datasets` reads them."""

import contextlib
import dataclasses
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_tunix.data.sources.remote import RemoteLocation
from agent_tunix.errors import DataError

_VERSION = re.compile(r"\d+\.\d+\.\d+")
# Wildcards of a pattern for files, of each kind. Matching takes time to the power of their number. The library's own
# patterns have two of each.
_MOST_WILDCARDS = {"**": 2, "*": 3}
# Values of a row.
_LARGEST_ROW = 1_000_000
# Formats that are read; `cache` is that of the library itself.
_FORMATS = ("arrow", "cache", "csv", "json", "parquet", "text")

# Options for reading files that a description may set: those that say which files and columns there are.
# fmt: off
_OPTIONS = frozenset((
    "column_names", "columns", "data_dir", "data_files", "delimiter", "description", "doublequote", "escapechar",
    "features", "field", "header", "name", "names", "quotechar", "quoting", "sep", "version",
))
# fmt: on


def check_format(place: RemoteLocation, builder: Any) -> None:
    """Refuse all formats of the library but those of tables of text, whose readers have limits.

    Raises:
        DataError: The files have another format, such as WebDataset.
    """
    name = type(builder).__module__.rpartition(".")[2]
    if name not in _FORMATS:
        raise DataError(
            f"{place.key}={place.path} must have files in JSON lines, CSV, Parquet, Arrow or plain text, but the "
            f"library datasets would read it as {name}; convert it to one of these formats",
            code="unsupported_format",
        )


def check_files(place: RemoteLocation, path: str, files: Mapping[Any, Iterable[str]] | None) -> None:
    """Refuse a dataset whose description or links name local files or addresses outside the dataset itself.

    Raises:
        DataError: It names such a file or address.
    """
    is_local = os.path.isdir(path)
    for file in (file for of_split in (files or {}).values() for file in of_split):
        plain = os.path.realpath(file) if is_local and "://" not in file else file
        if not plain.startswith(_inside(path)) or ".." in file.split("/"):
            raise _reads_elsewhere(place, file)


def _inside(path: str) -> tuple[str, ...]:
    """Return the prefixes of the paths of a dataset's own files, with links resolved."""
    if not os.path.isdir(path):
        return (f"hf://datasets/{path}@",)
    real = Path(os.path.realpath(path))
    in_cache = real.parent.name == "snapshots"  # of the hub, whose files are links to blobs
    return (f"{real}{os.sep}", *([f"{real.parents[1] / 'blobs'}{os.sep}"] if in_cache else []))


def _reads_elsewhere(place: RemoteLocation, file: str) -> DataError:
    return DataError(
        f"{place.key}={place.path} must only name files of the dataset, but names {file}, which is not read; choose "
        "another dataset, replace a link by its target, or remove the file from the data_files of its README.md",
        code="dataset_reads_elsewhere",
    )


@contextlib.contextmanager
def checking_descriptions(place: RemoteLocation, path: str) -> Iterator[None]:
    """Check descriptions of datasets (`README.md`) while the library reads them.

    Refuse a pattern that leads elsewhere before the library resolves it, because that opens addresses. Refuse patterns,
    aliases and columns that the library would take forever to read.

    Raises:
        DataError: A description has such a pattern, alias or column.
    """
    from datasets import Features, data_files
    from datasets.utils.metadata import MetadataConfigs

    resolve, build = data_files.resolve_pattern, vars(Features)["_from_yaml_list"]
    read = vars(MetadataConfigs)["from_dataset_card_data"]
    within = _inside(path)

    def resolve_own(pattern: str, base_path: str, *args: Any, **named: Any) -> list[str]:
        base = base_path if "://" in base_path else f"{os.path.realpath(base_path)}{os.sep}"
        is_own = base.startswith(within) and not os.path.isabs(pattern) and ":" not in pattern
        if not is_own or ".." in (*pattern.split("/"), *base_path.split("/")):
            raise _reads_elsewhere(place, pattern)
        _check_wildcards(place, pattern)
        found: list[str] = resolve(pattern, base_path, *args, **named)
        return found

    def build_plain(cls: Any, columns: Any) -> Any:
        _check_description(place, columns, set())
        return build.__func__(cls, columns)

    def read_plain(cls: Any, description: Any) -> Any:
        _check_description(place, vars(description), set())
        return read.__func__(cls, description)

    data_files.resolve_pattern = resolve_own
    Features._from_yaml_list = classmethod(build_plain)
    MetadataConfigs.from_dataset_card_data = classmethod(read_plain)
    try:
        yield
    finally:
        data_files.resolve_pattern = resolve
        Features._from_yaml_list = build
        MetadataConfigs.from_dataset_card_data = read


def _check_wildcards(place: RemoteLocation, pattern: str) -> None:
    counts = Counter(re.findall(r"\*+", pattern))
    if any(counts[wildcard] > most for wildcard, most in _MOST_WILDCARDS.items()):
        allowed = " and ".join(f"{most} of {wildcard}" for wildcard, most in _MOST_WILDCARDS.items())
        raise DataError(
            f"{place.key}={place.path} must name files by patterns with at most {allowed}, not by {pattern[:100]}; "
            "change the data_files of its README.md",
            code="too_many_wildcards",
        )


def _check_description(place: RemoteLocation, part: Any, seen: set[int]) -> None:
    """Refuse aliases, which can repeat a part any number of times, and class labels not numbered 0, 1, 2, …."""
    if not isinstance(part, dict | list):
        return
    if id(part) in seen:
        raise _invalid_description(place, "an alias of YAML")
    seen.add(id(part))
    labels = part.get("class_label") if isinstance(part, dict) else None
    names = labels.get("names") if isinstance(labels, dict) else None
    if isinstance(names, dict) and {str(name) for name in names} != {str(number) for number in range(len(names))}:
        raise _invalid_description(place, f"class labels {str(list(names))[:100]}")
    for inner in part.values() if isinstance(part, dict) else part:
        _check_description(place, inner, seen)


def _invalid_description(place: RemoteLocation, what: str) -> DataError:
    return DataError(
        f"{place.key}={place.path} must describe itself without aliases and number class labels from 0 without a gap,"
        f" but its README.md has {what}; remove it from README.md",
        code="invalid_dataset_description",
    )


def check_directory(place: RemoteLocation, directory: str) -> None:
    """Refuse a dataset in a directory with links that lead out of it, or with pipes or devices.

    The library reads more files than a description names, such as its own cache.

    Raises:
        DataError: The directory has such a link, pipe or device.
    """
    within = _inside(directory)
    for below, inner, names in os.walk(directory):
        for path in (os.path.join(below, name) for name in (*inner, *names)):
            if os.path.islink(path) and not os.path.realpath(path).startswith(within):
                raise _reads_elsewhere(place, path)
            if not (os.path.isfile(path) or os.path.isdir(path)):
                raise DataError(
                    f"{place.key}={place.path} must contain regular files, but {path} is a pipe, a device or a link to"
                    " nothing; remove it",
                    code="not_a_regular_file",
                )


def check_options(place: RemoteLocation, config: Any) -> None:
    """Refuse options for reading the files that may take forever or any amount of memory.

    Among them is a column separator that is a regular expression or is to be guessed.

    Raises:
        DataError: The description of the dataset sets one.
    """
    given = getattr(config, "sep", None), getattr(config, "delimiter", None)
    is_guessed = hasattr(config, "sep") and given == (None, None)
    if is_guessed or any(one is not None and len(str(one)) != 1 for one in given):
        raise DataError(
            f"{place.key}={place.path} must separate columns by one character, not by {given[1] or given[0]!r:.100}; "
            "change sep in its README.md, or use data.source=csv",
            code="invalid_separator",
        )
    for option in dataclasses.fields(config):
        value = getattr(config, option.name)
        if option.name not in _OPTIONS and option.default != value:
            raise DataError(
                f"{place.key}={place.path} sets {option.name}={value!r:.100} in its README.md, which is not supported, "
                f"because a reader may take forever with it; remove it, or use data.source=csv or jsonl. Supported are "
                f"{', '.join(sorted(_OPTIONS))}",
                code="unsupported_dataset_option",
            )


def check_features(place: RemoteLocation, features: Any) -> None:
    """Refuse columns whose values are lists or arrays of a large fixed size, which the library makes for each row.

    Raises:
        DataError: The description of the dataset has such a column.
    """
    if (size := _fixed_size(features)) > _LARGEST_ROW:
        raise DataError(
            f"{place.key}={place.path} must have rows of at most {_LARGEST_ROW:,} values, but the lengths in its "
            f"README.md make {size:,}; remove `length` there",
            code="large_rows",
        )


def _fixed_size(feature: Any) -> int:
    if isinstance(feature, Mapping | list | tuple):
        return sum(map(_fixed_size, feature.values() if isinstance(feature, Mapping) else feature))
    inner = getattr(feature, "feature", None)
    size: int = math.prod(one or 1 for one in getattr(feature, "shape", ()))
    length: int = getattr(feature, "length", 1)
    return max(length, 1) * size * (1 if inner is None else _fixed_size(inner))


def check_version(place: RemoteLocation, name: str, version: str) -> None:
    """Refuse a name of a subset or a version that the library could not use as a directory in its cache.

    Raises:
        DataError: The name is a path, or the version is not three numbers.
    """
    if name in ("", ".", "..") or os.sep in name or not _VERSION.fullmatch(version):
        raise DataError(
            f"{place.key}={place.path} must have a version of three numbers and a subset whose name is no path, not "
            f"{version!r:.100} and {name!r:.100}, which would be directories outside the cache; choose another dataset,"
            " or remove them from its README.md",
            code="dataset_writes_elsewhere",
        )


def check_saved(place: RemoteLocation, directory: Path) -> None:
    """Refuse a saved dataset that names files or directories elsewhere.

    Raises:
        DataError: It names one, or its description cannot be read.
    """
    splits = _read_saved(place, directory / "dataset_dict.json", lambda found: found["splits"])
    for part in (directory, *(directory / name for name in splits)):
        _read_saved(place, part / "state.json", lambda found: [one["filename"] for one in found["_data_files"]])


def _read_saved(place: RemoteLocation, path: Path, names_in: Callable[[Any], list[Any]]) -> list[str]:
    """Return the names in a description of a saved dataset; none without a file. Refuse names outside its directory."""
    try:
        names = [str(name) for name in names_in(json.loads(path.read_bytes()))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} of {place.key}={place.path} cannot be read: {error}") from error
    for name in names:
        if Path(name).name != name or name in ("", "..") or (path.parent / name).is_symlink():
            raise DataError(
                f"{place.key}={place.path} must only name files of the dataset, but {path} names {name}, which is"
                " not read; save the dataset again",
                code="dataset_reads_elsewhere",
            )
    return names
