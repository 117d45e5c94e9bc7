"""Datasets of the Hugging Face hub, and local directories that the `datasets` library can read.

Values are plain Python, as the library gives them: text, numbers, lists, dicts, `datetime`, None. A dataset is
downloaded once into the library's own cache; with `data.streaming=true` rows are fetched as they are needed.
"""

import dataclasses
import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.dataset_checks import (
    check_directory,
    check_features,
    check_files,
    check_format,
    check_options,
    check_saved,
    check_version,
    checking_descriptions,
)
from agent_tunix.data.sources.limited_downloads import limited_downloads
from agent_tunix.data.sources.remote import RemoteLocation, find_place, no_such_split
from agent_tunix.errors import AgentTunixError, DataError
from agent_tunix.hubs import huggingface as hub


def read_huggingface(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of a split; raise DataError if the dataset cannot be loaded, or has no such subset or split."""
    dropped.unit = "row"
    place = find_place(config, split, "huggingface")
    directory = Path(place.name).expanduser()
    is_local = directory.is_dir()
    try:
        with hub.explaining(place.request, place.name, place.revision, "dataset"):
            if is_local:
                dropped.origin = f"{place.split} of {directory}"
                rows = _load_directory(place, directory, split, config.data.streaming)
            else:
                commit = hub.resolve(place.request, place.name, place.revision, "dataset")
                dropped.origin = f"{place.split} of hf://{place.name}@{commit.sha}"
                load = _load_from_hub if commit.is_current else _load_from_cache
                rows = load(place, commit.sha, split, config.data.streaming)
            for number, columns in enumerate(_undecoded(rows), start=1):
                yield Row(number, dict(columns), is_padded=True)
    except hub.Unreachable as error:
        raise place.request.refuse(f"{error}, and there is no cached copy; {error.remedy}", code=error.code) from error


def _load_directory(
    place: RemoteLocation, directory: Path, split: Split, streaming: bool
) -> Iterable[Mapping[str, Any]]:
    import datasets

    if not any((directory / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _load(place, str(directory), split, streaming=streaming)
    check_directory(place, str(directory))
    check_saved(place, directory)
    saved = datasets.load_from_disk(str(directory))  # written by `save_to_disk`
    if isinstance(saved, datasets.Dataset):
        saved = {str(saved.split or "train"): saved}
    if place.split not in saved:
        raise no_such_split(place, split, ", ".join(saved))
    found = saved[place.split]
    try:
        found.data.validate(full=True)  # the library trusts offsets in the file, and would read beyond its end
    except ValueError as error:
        raise DataError(
            f"{place.key}={place.path} is damaged: {error}; save the dataset again", code="damaged_dataset"
        ) from error
    rows: Iterable[Mapping[str, Any]] = found
    return rows


def _load_from_hub(place: RemoteLocation, commit: str, split: Split, streaming: bool) -> Iterable[Mapping[str, Any]]:
    return _load(place, place.name, split, revision=commit, streaming=streaming)


def _load_from_cache(place: RemoteLocation, commit: str, split: Split, streaming: bool) -> Iterable[Mapping[str, Any]]:
    """Load this commit from the cache; the library would retry the hub for a minute, then use its latest commit."""
    import datasets
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = place.name.partition("/")
    below = Path(datasets.config.HF_DATASETS_CACHE) / f"{owner}___{camelcase_to_snakecase(name)}"
    prepared = list(below.glob(f"{place.subset or '*'}/*/{commit}"))
    if len(prepared) != 1:
        subsets = ", ".join(sorted(path.parents[1].name for path in prepared))
        what = f"has several subsets, {subsets}; name one with data.subset" if prepared else "does not have it"
        raise place.request.refuse(
            f"cannot be downloaded from the hub, and the cache {below} {what}; try again when this machine has "
            f"network access, or {place.request.instead}",
            code="not_cached",
        )
    files = [*prepared[0].glob(f"*-{place.split}.arrow"), *prepared[0].glob(f"*-{place.split}-*-of-*.arrow")]
    if not files:
        raise no_such_split(
            place, split, "in its cache " + ", ".join(path.name for path in prepared[0].glob("*.arrow"))
        )
    parts = [datasets.Dataset.from_file(str(file)) for file in sorted(files)]
    rows: Iterable[Mapping[str, Any]] = datasets.concatenate_datasets(parts)
    return rows


def _load(
    place: RemoteLocation, path: str, split: Split, *, streaming: bool, revision: str | None = None
) -> Iterable[Mapping[str, Any]]:
    # Never run a dataset's own code, whatever the version of the library.
    os.environ["HF_DATASETS_TRUST_REMOTE_CODE"] = "0"
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        if os.path.isdir(path):
            check_directory(place, path)
        with checking_descriptions(place, path):
            builder = datasets.load_dataset_builder(path, place.subset, revision=revision)
        check_format(place, builder)
        check_files(place, path, builder.config.data_files)
        check_version(place, str(builder.config.name), str(builder.config.version))
        check_options(place, builder.config)
        check_features(place, builder.info.features)
        if streaming:
            return cast("Iterable[Mapping[str, Any]]", builder.as_streaming_dataset(split=place.split))
        builder.download_and_prepare(dl_manager=limited_downloads(place, builder))
        return cast("Iterable[Mapping[str, Any]]", builder.as_dataset(split=place.split))
    except DataError:
        raise
    # The library raises the last three for descriptions of another shape than it expects.
    except (
        datasets.exceptions.DatasetsError,
        ValueError,
        RuntimeError,
        FileNotFoundError,
        ImportError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        if (said := _below(error)) is not None:
            raise said from error
        raise _refusal(place, split, error) from error


def _undecoded(rows: Any) -> Iterable[Mapping[str, Any]]:
    """Return rows with images and sounds as stored, because decoding opens any path or address in them."""
    import datasets

    features = getattr(rows, "features", None)
    plain = None if features is None else {name: _without_decoding(feature) for name, feature in features.items()}
    if plain == features:
        return cast("Iterable[Mapping[str, Any]]", rows)
    without = datasets.Features(plain)
    if isinstance(rows, datasets.Dataset):  # a cast would read and write the library's cache beside a saved dataset
        info = datasets.DatasetInfo(features=without)
        return cast("Iterable[Mapping[str, Any]]", datasets.Dataset(rows.data, info, rows.split, rows._indices))
    return cast("Iterable[Mapping[str, Any]]", rows.cast(without))


def _without_decoding(feature: Any) -> Any:
    if isinstance(feature, dict):
        return {name: _without_decoding(inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_without_decoding(inner) for inner in feature]
    if hasattr(feature, "decode"):
        return dataclasses.replace(feature, decode=False)
    if hasattr(feature, "feature"):
        return dataclasses.replace(feature, feature=_without_decoding(feature.feature))
    return feature


def _below(error: BaseException) -> OSError | None:
    """Return the error that the library wrapped in its own: the hub's, or the system's for a full disk; else None."""
    from huggingface_hub.errors import HfHubHTTPError

    below = error.__cause__ or error.__context__
    while below is not None:
        if isinstance(below, HfHubHTTPError) or (isinstance(below, OSError) and below.errno == errno.ENOSPC):
            return below
        below = below.__cause__ or below.__context__
    return None


def _refusal(place: RemoteLocation, split: Split, error: Exception) -> AgentTunixError:
    """Return the error for a subset, split or file that the library cannot use."""
    said = " ".join(str(error).split())
    if names := re.search(r"(?:BuilderConfig '.*' not found\. Available: |available configs: )\[([^\]]*)\]", said):
        return place.request.refuse(
            f"has the subsets {names[1]}; name one of them with data.subset", code="unknown_subset"
        )
    if names := re.search(r"(?:Should be one of|Available splits:) \[([^\]]*)\]", said):
        return no_such_split(place, split, names[1])
    if "is a gated dataset" in said:
        return hub.refuse_gated(place.request, place.name, "dataset")
    if "scripts are no longer supported" in said:
        return place.request.refuse(
            "needs its own loading script, which is not run; use a copy in Parquet (the revision "
            "refs/convert/parquet may have one: set data.revision)",
            code="dataset_program",
        )
    return DataError(f"{place.key}={place.path} cannot be loaded: {said}", code="damaged_dataset")
