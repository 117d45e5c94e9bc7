"""A directory that is pushed to the hub."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.hubs.push import push_directory
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_model_directory
from tests.hubs.loopback_hub import TOKEN, LoopbackHub

REPO = "owner/trained"
CARD = b"---\nlicense: apache-2.0\n---\n# Trained\n"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A model, its card and a picture in a directory below; and a file that is nobody's business."""
    directory = tmp_path / "export"
    directory.mkdir()
    for path in EMBEDDED_MODEL.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / "README.md").write_bytes(CARD)
    (directory / "plots").mkdir()
    (directory / "plots" / "reward.png").write_bytes(bytes(range(256)))
    (directory / ".cache").mkdir()
    (directory / ".cache" / "secret").write_bytes(b"x")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and ".cache" not in path.parts
    }


def refusal(directory: Path, repo_id: str = REPO, token: str | None = TOKEN) -> str:
    with pytest.raises(ModelError) as caught:
        push_directory(directory, repo_id, token=token)
    return str(caught.value)


def test_every_file_arrives_byte_for_byte_in_one_commit(hub: LoopbackHub, export: Path) -> None:
    url = push_directory(export, REPO, token=TOKEN)
    assert url == f"{hub.url}/{REPO}"
    repository = hub.models[REPO]
    arrived = {name: content for name, content in repository.files.items() if name != ".gitattributes"}
    assert arrived == contents(export)
    assert len(repository.commits) == 2  # the empty one with which a repository begins
    assert repository.private


def test_what_is_pushed_trains_on(hub: LoopbackHub, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    push_directory(export, REPO)
    directory = find_model_directory(ModelConfig(path=f"hf://{REPO}"))
    assert (directory / "model.safetensors").read_bytes() == (EMBEDDED_MODEL / "model.safetensors").read_bytes()


def test_a_second_push_replaces_files_and_keeps_the_rest(hub: LoopbackHub, export: Path) -> None:
    push_directory(export, REPO, private=False, token=TOKEN)
    hub.models[REPO].commit({"notes.md": b"by hand"})
    (export / "README.md").write_bytes(CARD + b"better")
    push_directory(export, REPO, token=TOKEN)
    assert hub.models[REPO].files["README.md"] == CARD + b"better"
    assert hub.models[REPO].files["notes.md"] == b"by hand"
    assert not hub.models[REPO].private


def test_no_token(hub: LoopbackHub, export: Path) -> None:
    message = refusal(export, token=None)
    assert f"pushing to {REPO} needs a token that may write there, and none is set" in message
    assert hub.asked == []


def test_a_token_that_is_not_valid(hub: LoopbackHub, export: Path) -> None:
    message = refusal(export, token="hf_expired")
    assert "the token is not valid" in message
    assert "hf_expired" not in message


def test_a_token_that_may_only_read(hub: LoopbackHub, export: Path) -> None:
    hub.readers.add("hf_reader")
    message = refusal(export, token="hf_reader")
    assert "you must use a write token" in message
    assert "the token must have the right to write there" in message


def test_storage_that_is_full(hub: LoopbackHub, export: Path) -> None:
    hub.is_full = True
    assert "Private repository storage limit reached" in refusal(export)
    assert len(hub.models[REPO].commits) == 1


def test_no_network(hub: LoopbackHub, export: Path) -> None:
    hub.close()
    message = refusal(export)
    assert f"{hub.url} cannot be reached" in message
    assert "nothing was committed" in message


def test_offline_on_purpose(hub: LoopbackHub, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set; unset it" in refusal(export)


def test_a_name_that_is_none(hub: LoopbackHub, export: Path) -> None:
    assert "should be named owner/name" in refusal(export, "owner/name/more")


def test_an_empty_directory(hub: LoopbackHub, tmp_path: Path) -> None:
    assert "holds no files" in refusal(tmp_path)
    assert hub.models == {}


def test_a_card_whose_metadata_are_wrong(hub: LoopbackHub, export: Path) -> None:
    hub.card_problems.append('"license" must be one of the licences that the hub knows')
    message = refusal(export)
    assert '"license" must be one of' in message
    assert "correct README.md" in message
    assert len(hub.models[REPO].commits) == 1
