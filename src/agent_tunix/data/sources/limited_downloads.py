"""Downloads of the library `datasets`, which unpacks archives, compressed files and Parquet without a limit."""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_tunix.data.sources.files import most_unpacked
from agent_tunix.data.sources.parquet import READ_AHEAD_BYTES, limited_batches
from agent_tunix.data.sources.remote import RemoteLocation
from agent_tunix.errors import DataError


def limited_downloads(place: RemoteLocation, builder: Any) -> Any:
    """Return a download manager with the limits on unpacked files that our own sources have.

    Raises:
        DataError: A method of it was called with a file that exceeds them.
    """
    import datasets
    from datasets.utils.py_utils import NestedDataStructure

    class LimitedDownloads(datasets.DownloadManager):  # type: ignore[misc]  # the library has no types
        def download(self, url_or_urls: Any) -> Any:
            found = super().download(url_or_urls)
            for path in NestedDataStructure(found).flatten():
                _require_little_parquet(Path(path))
            return found

        def extract(self, path_or_paths: Any) -> Any:
            for path in NestedDataStructure(path_or_paths).flatten():
                _require_little_growth(place, Path(path))
            return super().extract(path_or_paths)

    # As the library makes its own.
    config = datasets.DownloadConfig(
        cache_dir=str(datasets.config.DOWNLOADED_DATASETS_PATH),
        use_etag=False,
        token=builder.token,
        storage_options=builder.storage_options,
    )
    return LimitedDownloads(builder.dataset_name, builder.config.data_dir, config, builder.base_path)


def _require_little_growth(place: RemoteLocation, path: Path) -> None:
    from datasets.utils import extract, file_utils

    packing = vars(file_utils)["_get_extraction_protocol"](str(path)) or extract.Extractor.infer_extractor_format(path)
    if not packing:
        return
    most, size = most_unpacked(path), 0
    try:
        for part in _unpacked_sizes(path, packing):
            if (size := size + part) > most:
                break
    except Exception as error:  # foreign formats, each with its own errors
        said = f"{path.name} cannot be unpacked: {error}"
        raise DataError(f"{place.key}={place.path} cannot be loaded: {said}", code="damaged_dataset") from error
    if size > most:
        raise DataError(
            f"{place.key}={place.path} may only have compressed files of at most {most:,} bytes when unpacked, but "
            f"{path.name} has more; unpack the file first",
            code="unreadable_file",
        )


def _require_little_parquet(path: Path) -> None:
    """Read a file, if it is Parquet: a text that its rows share is stored once, so its metadata does not say enough."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, buffer_size=READ_AHEAD_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError):  # another format, or damaged, which the library finds as well
        return
    with file:
        for _ in limited_batches(file, path):
            pass


def _unpacked_sizes(path: Path, packing: str) -> Iterator[int]:
    """Yield the sizes of the members of an archive, or of pieces of a compressed file."""
    import fsspec

    if packing == "zip":
        with zipfile.ZipFile(path) as archive:
            yield from (member.file_size for member in archive.infolist())
    elif packing == "tar":
        with tarfile.open(path) as members:
            yield from (member.size for member in members)
    else:
        with fsspec.open(str(path), compression=packing) as file:
            while content := file.read(2**20):
                yield len(content)
