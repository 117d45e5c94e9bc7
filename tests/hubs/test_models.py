"""Promises about models that one hub alone makes."""

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.files.directory import EMBEDDED_MODEL, find_cached_directory, find_model_directory, pin_model
from agent_tunix.policy.files.teacher import pin_teacher
from tests.hubs.loopback_gcs import LoopbackGcs
from tests.hubs.loopback_hub import TOKEN, LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle, Resource
from tests.hubs.services import KAGGLE_MODEL, TINY, WEIGHTS
from tests.raising import raises

REPO = "owner/tiny"
OTHERS = ["README.md", "pytorch_model.bin", "onnx/model.onnx", "original/model.safetensors", "consolidated.safetensors"]


def config(path: str = f"hf://{REPO}") -> ModelConfig:
    return ModelConfig(path=path)


def refusal(code: str, path: str = f"hf://{REPO}") -> str:
    with raises(ModelError, code) as caught:
        find_model_directory(config(path))
    return str(caught.value)


@pytest.mark.parametrize("path", [None, "/models/qwen3", "models/qwen3"])
def test_pinning_leaves_directories_alone(path: str | None) -> None:
    assert pin_model(ModelConfig(path=path)) == ModelConfig(path=path)
    assert find_cached_directory(ModelConfig(path=path)) == (EMBEDDED_MODEL if path is None else None)


def test_all_shards_arrive_and_other_files_are_left_on_the_hub(hub: LoopbackHub) -> None:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1]}}).encode()
    wanted = {name: content for name, content in TINY.items() if name != WEIGHTS}
    wanted |= dict.fromkeys(names, TINY[WEIGHTS]) | {f"{WEIGHTS}.index.json": index}
    hub.add_model(REPO, wanted | dict.fromkeys(OTHERS, b"x"))
    directory = find_model_directory(config())
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == wanted
    assert set(hub.downloads()) <= set(wanted)


def test_a_copy_without_its_tokenizer_is_completed(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    (find_model_directory(config()) / "tokenizer.json").unlink()
    assert (find_model_directory(config()) / "tokenizer.json").read_bytes() == TINY["tokenizer.json"]


def test_a_branch_or_commit_may_be_named(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    first = repository.head
    recorded = pin_model(config())
    assert recorded.path == f"hf://{REPO}@{first}"
    repository.commit({"generation_config.json": b"{}"})
    assert find_model_directory(config(f"hf://{REPO}@{first}")).name == first
    assert find_model_directory(config(f"hf://{REPO}@main")).name == repository.head
    assert pin_model(config(f"hf://{REPO}@main"), recorded) == recorded
    assert pin_model(config(f"hf://{REPO}@{repository.head}"), recorded).path != recorded.path
    message = refusal("not_found", f"hf://{REPO}@v9")
    assert f"{hub.url}/{REPO}/commits/main" in message


def test_a_teacher_is_pinned_like_the_model(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    config = Config()
    config.grpo.teacher = f"hf://{REPO}"
    recorded = pin_teacher(config)
    assert recorded.grpo.teacher == f"hf://{REPO}@{repository.head}"
    repository.commit({"generation_config.json": b"{}"})
    assert pin_teacher(config, recorded) == recorded
    assert pin_teacher(config, Config()) == pin_teacher(config) != recorded
    config.grpo.teacher = "hf://owner/absent"
    with raises(ModelError, "not_found") as caught:
        pin_teacher(config)
    assert str(caught.value).startswith("grpo.teacher=hf://owner/absent")


@pytest.mark.parametrize("restriction", ["gated", "private"])
def test_a_token_opens_what_is_closed(hub: LoopbackHub, restriction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = hub.add_model(REPO, TINY, **{restriction: True})
    message = refusal("access_denied" if restriction == "gated" else "not_found")
    assert "no token " in message
    assert "set HF_TOKEN" in message
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    if restriction == "gated":
        assert "the current token has no access" in refusal("access_denied")
        repository.accepted.add(TOKEN)
    assert find_model_directory(config()).is_dir()


def test_a_token_that_sees_no_such_model(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "the current token can see" in refusal("not_found", "hf://owner/none")


def test_a_token_that_is_not_valid_is_not_shown(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    assert "hf_expired" not in refusal("access_denied")


def test_offline_on_purpose(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "unset HF_HUB_OFFLINE" in refusal("hub_unreachable")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    directory = find_model_directory(config())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model_directory(config()) == directory


def test_a_connection_that_is_cut_is_made_again(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    repository.cuts[WEIGHTS] = [len(TINY[WEIGHTS]) // 2]
    assert (find_model_directory(config()) / WEIGHTS).read_bytes() == TINY[WEIGHTS]
    assert hub.downloads().count(WEIGHTS) == 2


def test_a_model_that_does_not_fit_on_the_disk_is_refused_before_it_is_downloaded(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    repository.sizes[WEIGHTS] = shutil.disk_usage(Path(constants.HF_HOME)).free * 2 + 10**9
    assert "set HF_HOME to a directory on another disk" in refusal("disk_full")
    assert hub.downloads() == []


BUCKET = "gs://bucket/models/tiny"


def test_a_directory_of_a_bucket_has_no_revisions(gcs: LoopbackGcs) -> None:
    files = gcs.buckets["bucket"] = {f"models/tiny/{name}": content for name, content in TINY.items()}
    files |= {"models/tiny/notes.txt": b"x", "models/tiny/onnx/model.bin": b"x", "models/tiny2/a": b"x"}
    gcs.damaged.add("models/tiny/tokenizer.json")
    refusal("incomplete_download", BUCKET)
    gcs.damaged.clear()
    gcs.asked.clear()
    assert {file.name for file in find_model_directory(config(f"{BUCKET}/")).iterdir()} == set(TINY)
    fetched = [name for name in gcs.asked if name != "list"]
    assert "models/tiny/tokenizer.json" in fetched
    assert len(fetched) < len(TINY)  # What arrived whole does not come again.
    pinned = pin_model(config(BUCKET))
    shutil.rmtree(find_model_directory(pinned))
    files["models/tiny/generation_config.json"] = b"{}"
    refusal("not_found", str(pinned.path))
    refusal("not_found", "gs://bucket/none")


def test_a_version_of_kaggle(kaggle: LoopbackKaggle) -> None:
    kaggle.resources[KAGGLE_MODEL] = Resource([TINY, TINY])
    assert pin_model(config(f"kaggle://{KAGGLE_MODEL}")).path == f"kaggle://{KAGGLE_MODEL}/2"
    assert find_model_directory(config(f"kaggle://{KAGGLE_MODEL}/1")).name == "1"
    refusal("not_found", f"kaggle://{KAGGLE_MODEL}/3")
