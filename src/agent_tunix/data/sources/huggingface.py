"""Datasets of the Hugging Face hub, and local directories that the `datasets` library can read.

Values are plain Python, as the library gives them: text, numbers, lists, dicts, `datetime`, None. A dataset is
downloaded once into the library's own cache; with `data.streaming=true` rows are fetched as they are needed.
"""

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
from agent_tunix.data.sources.remote import RemoteLocation, find_place, no_such_split
from agent_tunix.errors import AgentTunixError, DataError
from agent_tunix.hubs import huggingface as hub
from agent_tunix.hubs.request import Unreachable


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
                rows = _load(place, str(directory), split, streaming=config.data.streaming)
            else:
                commit = hub.resolve(place.request, place.name, place.revision, "dataset")
                dropped.origin = f"{place.split} of hf://{place.name}@{commit.sha}"
                if commit.is_current:
                    rows = _load(place, place.name, split, revision=commit.sha, streaming=config.data.streaming)
                else:
                    rows = _load_from_cache(place, commit.sha, split)
            for number, columns in enumerate(_undecoded(rows), start=1):
                yield Row(number, dict(columns), is_padded=True)
    except Unreachable as error:
        raise place.request.refuse_without_copy(error, "there is no cached copy") from error


def _load_from_cache(place: RemoteLocation, commit: str, split: Split) -> Any:
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
    return datasets.concatenate_datasets(parts)


def _load(place: RemoteLocation, path: str, split: Split, *, streaming: bool, revision: str | None = None) -> Any:
    # Never run a dataset's own code, whatever the version of the library.
    os.environ["HF_DATASETS_TRUST_REMOTE_CODE"] = "0"
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        if any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "state.json")):
            saved = datasets.load_from_disk(path)  # written by `save_to_disk`
            if isinstance(saved, datasets.Dataset):
                saved = {str(saved.split or "train"): saved}
            if place.split not in saved:
                raise no_such_split(place, split, ", ".join(saved))
            return saved[place.split]
        return datasets.load_dataset(path, place.subset, split=place.split, revision=revision, streaming=streaming)
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
    ) as error:
        if (cause := _below(error)) is not None:
            raise cause from error
        raise _refusal(place, split, error) from error


def _undecoded(rows: Any) -> Iterable[Mapping[str, Any]]:
    """Return rows with images and sounds as stored, so that no library for them is needed."""
    import datasets

    stream = rows.to_iterable_dataset() if isinstance(rows, datasets.Dataset) else rows
    return cast("Iterable[Mapping[str, Any]]", stream.decode(False))


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
    message = " ".join(str(error).split())
    if names := re.search(r"(?:BuilderConfig '.*' not found\. Available: |available configs: )\[([^\]]*)\]", message):
        return place.request.refuse(
            f"has the subsets {names[1]}; name one of them with data.subset", code="unknown_subset"
        )
    if names := re.search(r"(?:Should be one of|Available splits:) \[([^\]]*)\]", message):
        return no_such_split(place, split, names[1])
    if "is a gated dataset" in message:
        return hub.refuse_gated(place.request, place.name, "dataset")
    if "scripts are no longer supported" in message:
        return place.request.refuse(
            "needs its own loading script, which is not run; use a copy in Parquet (the revision "
            "refs/convert/parquet may have one: set data.revision)",
            code="unsupported_data",
        )
    return DataError(f"{place.key}={place.path} cannot be loaded: {message}", code="damaged_data")
