from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.hubs.push import push_directory
from agent_tunix.policy.files.directory import find_model_directory
from tests.hubs.loopback_hub import TOKEN, LoopbackHub
from tests.hubs.services import TINY, WEIGHTS
from tests.raising import raises

REPO = "owner/trained"
CARD = b"---\nlicense: apache-2.0\n---\n# Trained\n"
PICTURE = bytes(range(256))


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A model, its card and a picture in a directory below; and a file that is nobody's business."""
    directory = tmp_path / "export"
    for name, content in {**TINY, "README.md": CARD, "plots/reward.png": PICTURE, ".cache/secret": b"x"}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def test_every_file_arrives_byte_for_byte_in_one_commit(
    hub: LoopbackHub, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert push_directory(export, REPO) == f"{hub.url}/{REPO}"
    repository = hub.models[REPO]
    assert repository.files == {".gitattributes": b"", **TINY, "README.md": CARD, "plots/reward.png": PICTURE}
    assert len(repository.commits) == 2  # the empty one with which a repository begins
    assert repository.private
    directory = find_model_directory(ModelConfig(path=f"hf://{REPO}"))
    assert (directory / WEIGHTS).read_bytes() == TINY[WEIGHTS]


def test_a_second_push_replaces_files_and_keeps_the_rest(hub: LoopbackHub, export: Path) -> None:
    push_directory(export, REPO, private=False, token=TOKEN)
    hub.models[REPO].commit({"notes.md": b"by hand"})
    (export / "README.md").write_bytes(CARD + b"better")
    push_directory(export, REPO, token=TOKEN)
    assert hub.models[REPO].files["README.md"] == CARD + b"better"
    assert hub.models[REPO].files["notes.md"] == b"by hand"
    assert not hub.models[REPO].private


@pytest.mark.parametrize(
    ("repo_id", "token", "code", "words"),
    [
        (REPO, None, "access_denied", "set HF_TOKEN"),
        (REPO, "hf_expired", "access_denied", "set HF_TOKEN"),
        (REPO, "hf_reader", "access_denied", "you must use a write token"),
        ("owner/name/more", TOKEN, "invalid_address", "owner/name"),
    ],
)
def test_a_token_or_name_that_does_not_do(
    hub: LoopbackHub, export: Path, repo_id: str, token: str | None, code: str, words: str
) -> None:
    hub.readers.add("hf_reader")
    with raises(ModelError, code) as caught:
        push_directory(export, repo_id, token=token)
    assert words in str(caught.value)
    assert str(token) not in str(caught.value)
    assert hub.models == {}


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("full", "access_denied", "Private repository storage limit reached"),
        ("closed", "hub_unreachable", "nothing was committed"),
        ("failing", "hub_failed", "try again later"),
        ("card", "hub_failed", '"license" must be known; correct README.md'),
    ],
)
def test_a_hub_that_refuses_has_nothing_committed(
    hub: LoopbackHub, export: Path, fault: str, code: str, words: str
) -> None:
    hub.is_full, hub.status = fault == "full", 500 if fault == "failing" else 200
    if fault == "card":
        hub.card_problems.append('"license" must be known')
    if fault == "closed":
        hub.close()
    with raises(ModelError, code) as caught:
        push_directory(export, REPO, token=TOKEN)
    assert words in str(caught.value)
    assert all(len(repository.commits) == 1 for repository in hub.models.values())


def test_offline_on_purpose(hub: LoopbackHub, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with raises(ModelError, "hub_unreachable"):
        push_directory(export, REPO, token=TOKEN)
