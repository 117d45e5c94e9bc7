"""The server that other tests rely on, asked by the libraries themselves."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from tests.hubs.loopback_hub import TOKEN, LoopbackHub

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 400, "onnx/model.bin": b"x"}


def test_snapshot_has_every_byte(hub: LoopbackHub) -> None:
    repository = hub.add_model("owner/name", FILES)
    directory = Path(snapshot_download("owner/name"))
    assert directory.name == repository.head
    assert {name: (directory / name).read_bytes() for name in FILES} == FILES


def test_older_revision_is_had_by_its_hash(hub: LoopbackHub) -> None:
    repository = hub.add_model("owner/name", FILES)
    first = repository.head
    repository.commit({"config.json": b"[]"})
    assert (Path(snapshot_download("owner/name", revision=first)) / "config.json").read_bytes() == b"{}"
    assert (Path(snapshot_download("owner/name")) / "config.json").read_bytes() == b"[]"


def test_refusals_are_those_of_the_hub(hub: LoopbackHub) -> None:
    hub.add_model("owner/gated", FILES, gated=True)
    hub.add_model("owner/private", FILES, private=True)
    with pytest.raises(RepositoryNotFoundError):
        snapshot_download("owner/private")
    with pytest.raises(RepositoryNotFoundError):
        snapshot_download("owner/none", token=TOKEN)
    with pytest.raises(GatedRepoError):
        snapshot_download("owner/gated", token=TOKEN)
    with pytest.raises(RevisionNotFoundError):
        snapshot_download("owner/gated", revision="v9")


def test_uploaded_files_arrive_whole(hub: LoopbackHub, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    api = HfApi(token=TOKEN)
    api.create_repo("owner/new", private=True)
    api.upload_folder(repo_id="owner/new", folder_path=tmp_path)
    assert hub.models["owner/new"].private
    assert FILES.items() <= hub.models["owner/new"].files.items()
