"""The files with the rows of a split, and the source that reads them."""

import glob
import itertools
import os
import re
import stat
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.remote import source_of_scheme
from agent_tunix.errors import DataError

# File suffixes by source.
SUFFIXES = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv", ".tsv"), "parquet": (".parquet",)}
# Compression suffixes of text files.
COMPRESSIONS = (".gz", ".zst", ".bz2")
NAMES_SHOWN = 5


def source_of_path(config: Config, split: Split) -> str:
    """Return the source that `data.source=auto` stands for: decided by file suffixes, or `synthetic` without a path.

    Raises:
        DataError: The suffix is unknown, or a directory has files of no known kind or of several kinds.
    """
    key, setting, path = _read_setting(config, split)
    if path is None:
        return "synthetic"
    if (on_hub := source_of_scheme(str(setting))) is not None:
        return on_hub
    if os.path.isdir(path):
        kinds = [source for source in SUFFIXES if _files_of_split(path, _split_name(config, split), source)]
        if len(kinds) == 1:
            return kinds[0]
        name = _split_name(config, split)
        known = ", ".join(f"{name}{suffixes[0]}" for suffixes in SUFFIXES.values())
        if kinds:
            raise DataError(
                f"{key}={setting} must contain {name} files of one kind, but has several; set "
                f"data.source={' or '.join(kinds)}",
                code="unsupported_data",
            )
        raise DataError(_not_in_directory(key, setting, known, split), code="missing_data")
    source = source_of_name(path.name)
    if source is not None:
        return source
    if not any(map(os.path.exists, _matches(path))):
        raise _missing(key, setting, path, "No such file or directory")
    every = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
    raise DataError(
        f"the kind of the file {key}={setting} is unknown; use one of the suffixes {every}, or set "
        f"data.source={', '.join(SUFFIXES)}",
        code="unsupported_data",
    )


def find_files(config: Config, split: Split, source: str) -> list[Path]:
    """Return the files with the rows of a split, in reading order.

    `training.train_data_dir` and `training.test_data_dir` take precedence over `data.path`. Each may be a file, a
    pattern (`part-*.jsonl`, in alphabetical order) or a directory. In a directory, the split is in a file
    `train.jsonl`, or in numbered files such as `train-00000-of-00002.jsonl`. A `data.path` that is not a directory
    holds training rows only: held-out rows must come from elsewhere.

    Args:
        config: The run's configuration.
        split: Split to find.
        source: Source that will read the files; it decides their suffixes in a directory.

    Raises:
        DataError: No path is given, no such file exists, or numbered files such as `train-00000-of-00004.jsonl` are
            incomplete.
    """
    key, setting, path = _read_setting(config, split)
    name = _split_name(config, split)
    if path is None:
        suffix = SUFFIXES[source][0]
        raise DataError(
            f"data.source={source} requires the {split} rows, but neither data.path nor training.{split}_data_dir is "
            f"set; set data.path to a directory with train{suffix} and test{suffix}, or to one file",
            code="missing_data",
        )
    if os.path.isdir(path):
        files = _files_of_split(path, name, source)
        if not files:
            raise DataError(_not_in_directory(key, setting, f"{name}{SUFFIXES[source][0]}", split), code="missing_data")
        alike = [file for file in files if not _is_numbered(file.name, name)]
        if len(alike) > 1:
            raise DataError(
                f"{key}={setting} must have one file per split, but has {' and '.join(file.name for file in alike)}; "
                "remove all but one, or set the path of one file",
                code="missing_data",
            )
        if not alike:
            _check_shards(f"{key}={setting}", files, name)
        for file in files:
            _require_regular(key, setting, file)
        return alike or files
    files = _matches(path)
    if not files:
        raise _missing(key, setting, path, "no file matches it")
    for file in files:
        _require_regular(key, setting, file)
    if split == "test" and key == "data.path":
        what = "is one file, which contains" if len(files) == 1 else f"matches {len(files)} files, which contain"
        raise DataError(
            f"data.path={setting} {what} training rows but no rows for evaluation; set training.train_fraction=0.9 to "
            "hold some of them out, or training.test_data_dir to another file",
            code="no_rows",
        )
    return files


def _require_regular(key: str, setting: str | None, file: Path) -> None:
    """Refuse a missing file, and one that may never end: a pipe or a device."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise _missing(key, setting, file, error.strerror or str(error)) from error
    if not stat.S_ISREG(mode):
        raise DataError(
            f"{key}={setting} must name regular files, because rows are read several times, but {file} is a pipe, a "
            "device or a directory; write its content to a file",
            code="unsupported_data",
        )


def _read_setting(config: Config, split: Split) -> tuple[str, str | None, Path | None]:
    """Return the key that gives the path, its value, and the expanded path."""
    override = config.training.train_data_dir if split == "train" else config.training.test_data_dir
    key = f"training.{split}_data_dir" if override is not None else "data.path"
    setting = config.data.path if override is None else override
    return key, setting, None if setting is None else Path(os.path.expanduser(setting))


def _split_name(config: Config, split: Split) -> str:
    return config.data.train_split if split == "train" else config.data.test_split


def _matches(path: Path) -> list[Path]:
    """Return the file itself, or the files that match a pattern in alphabetical order."""
    if glob.has_magic(str(path)) and not os.path.lexists(path):
        return [Path(name) for name in sorted(glob.glob(str(path), recursive=True)) if os.path.isfile(name)]
    return [path]


def _files_of_split(directory: Path, name: str, source: str) -> list[Path]:
    """Return the file of a split, such as `train.jsonl`, and its numbered files, in alphabetical order."""
    files = sorted(file for file in directory.iterdir() if source_of_name(file.name) == source)
    return [file for file in files if _stem(file.name) == name or _is_numbered(file.name, name)]


def _is_numbered(file_name: str, name: str) -> bool:
    return re.match(re.escape(name) + r"[-_.]\d", file_name) is not None


def _check_shards(where: str, files: list[Path], name: str) -> None:
    """Refuse numbered files `train-00000-of-00004.jsonl` if they are incomplete or from different sets."""
    matches = [re.match(re.escape(name) + r"([-_.])(\d+)-of-(\d+)(?=\.)", file.name) for file in files]
    shards = [match for match in matches if match]
    if not shards:
        return
    others = [file.name for file, match in zip(files, matches, strict=True) if not match]
    if others:
        raise DataError(
            f"{where} must contain one set of shards, but has both {shards[0].string} and "
            f"{_some(others, len(others))}; keep the files of one set",
            code="damaged_data",
        )
    totals = sorted({match[3] for match in shards}, key=int)
    numbers = [int(match[2]) for match in shards]
    if len(totals) > 1 or len(set(numbers)) < len(numbers):
        raise DataError(
            f"{where} must contain one set of shards, but has {shards[0].string} and {shards[-1].string}; keep the "
            "files of one set",
            code="damaged_data",
        )
    total, first = int(totals[0]), 0 if 0 in numbers or int(totals[0]) not in numbers else 1
    if too_high := [match.string for match in shards if not first <= int(match[2]) < first + total]:
        raise DataError(
            f"{where} must contain the {total} shards of one set, but has {_some(too_high, len(too_high))}; remove it",
            code="damaged_data",
        )
    if len(numbers) < total:
        _, separator, digits, of = shards[0][0], shards[0][1], len(shards[0][2]), shards[0][3]
        end = shards[0].string[shards[0].end() :]
        absent = (number for number in range(first, first + total) if number not in numbers)
        names = [
            f"{name}{separator}{number:0{digits}}-of-{of}{end}" for number in itertools.islice(absent, NAMES_SHOWN)
        ]
        raise DataError(
            f"{where} must contain all {total} shards of one set, but has {len(numbers)} and lacks "
            f"{_some(names, total - len(numbers))}; add them, or use a pattern such as {where}/{name}{separator}* to "
            "use only the files that are there",
            code="damaged_data",
        )


def _some(names: list[str], count: int) -> str:
    """Return the first few names; the rest of the `count` are given as a number."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if count <= NAMES_SHOWN else f"{shown} and {count - NAMES_SHOWN} more"


def source_of_name(name: str) -> str | None:
    """Return the source that reads files with this suffix; None if it is unknown."""
    bare = uncompressed(name).lower()
    source = next((source for source, suffixes in SUFFIXES.items() if bare.endswith(suffixes)), None)
    return None if source == "parquet" and bare != name.lower() else source


def uncompressed(name: str) -> str:
    """Return the name without a compression suffix."""
    return name.rpartition(".")[0] if name.lower().endswith(COMPRESSIONS) else name


def _stem(name: str) -> str:
    return uncompressed(name).rpartition(".")[0]


def _not_in_directory(key: str, setting: str | None, wanted: str, split: Split) -> str:
    remedy = f"correct {key}"
    if key == "data.path":
        remedy += f" or name the split with data.{split}_split"
    if split == "test":
        remedy += " or set training.train_fraction=0.9 to hold out some training rows"
    return f"{key}={setting} must contain the {split} rows, but there is no {wanted} in it; {remedy}"


def _missing(key: str, setting: str | None, path: Path, why: str) -> DataError:
    return DataError(
        f"{key}={setting} must name files with rows, but {path} cannot be read: {why}; correct {key}",
        code="missing_data",
    )
