"""Uploaded rewards of a run: fetched once, copied into its directory, and read from there when it is resumed."""

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.errors import RunDirectoryError
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.uploaded import Fetch, UploadedSource, is_function_id, uploaded_source_of
from agent_tunix.runs.directory import write_bytes
from agent_tunix.store.fetching import fetch_uploaded, remembering

_LOGGER = logging.getLogger("agent_tunix.run")

KEY = "uploaded_rewards"  # in environment.json
DIRECTORY = "rewards"


def make_fetch(run: Path | None = None) -> Fetch:
    """Return the function that fetches the uploaded rewards of a configuration.

    Args:
        run: Directory of the run that the configuration belongs to. Its copies take precedence over the store. None to
            use the store alone.
    """
    pinned = [] if run is None else list(_read_pinned(run))

    def fetch(spec: str) -> UploadedSource | None:
        meant = [source for source in pinned if spec in (source.id, source.name)]
        if meant:
            return max(meant, key=lambda source: source.version)
        return fetch_uploaded(spec)

    return remembering(fetch)


def pin_uploaded(mixture: Mixture, root: Path) -> list[dict[str, Any]]:
    """Copy the files of a run's uploaded rewards into its directory.

    Returns:
        Their entries in `environment.json`, under `uploaded_rewards`.

    Raises:
        RunDirectoryError: A file cannot be written.
    """
    sources = {source.id: source for source in _sources_of(mixture)}
    for source in sources.values():
        file = root / DIRECTORY / source.file
        if not file.exists() or file.read_bytes() != source.content:
            write_bytes(file, source.content)
    return [
        {
            "id": source.id,
            "name": source.name,
            "version": source.version,
            "format": source.format,
            "function": source.function,
            "sha256": source.sha256,
            "origin": source.origin,
            "file": f"{DIRECTORY}/{source.file}",
        }
        for source in sources.values()
    ]


def _sources_of(mixture: Mixture) -> Iterator[UploadedSource]:
    for component in mixture.components:
        source = uploaded_source_of(component.reward)
        if source is not None:
            yield source


def _read_pinned(run: Path) -> Iterator[UploadedSource]:
    """Yield the uploaded rewards that a run holds.

    A reward whose file or entry is missing or damaged is left out, so that it is fetched from the store.

    Raises:
        RunDirectoryError: A file cannot be read.
    """
    for entry in _entries(run / "environment.json"):
        # The path in the entry could lead out of the directory, so it is not used.
        file = run / DIRECTORY / f"{entry['id']}.py"
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            _LOGGER.warning("%s is missing; downloading the reward again", file)
            continue
        except OSError as error:
            raise RunDirectoryError(f"{file} cannot be read: {error}", code="damaged_run") from error
        source = UploadedSource(
            entry["id"],
            entry["name"],
            entry["format"],
            entry["version"],
            content,
            entry["origin"],
            entry.get("function", "reward"),
        )
        if source.sha256 != entry["sha256"]:
            _LOGGER.warning("%s has changed since it was downloaded from %s", file, source.origin)
        yield source


def _entries(environment: Path) -> Sequence[dict[str, Any]]:
    try:
        found = json.loads(environment.read_bytes()).get(KEY, [])
        if not isinstance(found, list) or not all(map(_is_entry, found)):
            raise ValueError(f"{KEY} must be a list of uploaded rewards, but is not")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        _LOGGER.warning("%s is damaged (%s); uploaded rewards are downloaded again", environment, error)
        return []
    return found


def _is_entry(entry: object) -> bool:
    texts = ("id", "name", "format", "sha256", "origin")
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in texts)
        and isinstance(entry.get("version"), int)
        and is_function_id(entry["id"])
    )
