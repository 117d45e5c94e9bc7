"""Models from the Hugging Face hub: what is fetched, what is kept, and what each failure says."""

import json
import logging
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_cached_directory, find_model_directory, pin_model
from tests.hubs.loopback_hub import TOKEN, LoopbackHub

TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
REPO = "owner/tiny"


def config(path: str = f"hf://{REPO}") -> ModelConfig:
    return ModelConfig(path=path)


def refusal(path: str = f"hf://{REPO}") -> str:
    with pytest.raises(ModelError) as caught:
        find_model_directory(config(path))
    return str(caught.value)


def sharded() -> dict[str, bytes]:
    """The model in two files, of which the second is the whole again under another name."""
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    rest = {name: content for name, content in TINY.items() if not name.endswith(".safetensors")}
    shards = dict.fromkeys(names, TINY["model.safetensors"])
    return rest | shards | {"model.safetensors.index.json": json.dumps(index).encode()}


def test_every_needed_file_arrives_byte_for_byte(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    directory = find_model_directory(config())
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == TINY


def test_what_a_run_does_not_need_is_left_on_the_hub(hub: LoopbackHub) -> None:
    others = ["README.md", "pytorch_model.bin", "onnx/model.onnx", "original/model.safetensors", "tokenizer.model"]
    hub.add_model(REPO, TINY | dict.fromkeys(others, b"x") | {"consolidated.safetensors": b"x"})
    find_model_directory(config())
    assert sorted(hub.downloads()) == sorted(TINY)


def test_sharded_weights_arrive_all(hub: LoopbackHub) -> None:
    hub.add_model(REPO, sharded())
    directory = find_model_directory(config())
    assert len(list(directory.glob("*.safetensors"))) == 2


def test_a_second_call_downloads_nothing(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    pinned = pin_model(config())
    first = find_model_directory(pinned)
    hub.asked.clear()
    assert find_model_directory(pinned) == first
    assert hub.asked == []


def test_a_copy_without_its_tokenizer_is_completed(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    (find_model_directory(config()) / "tokenizer.json").unlink()
    assert (find_model_directory(config()) / "tokenizer.json").read_bytes() == TINY["tokenizer.json"]


def test_pinning_names_the_commit_and_keeps_it(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    first = repository.head
    pinned = pin_model(config())
    assert pinned.path == f"hf://{REPO}@{first}"
    repository.commit({"generation_config.json": b"{}"})
    assert pin_model(pinned) == pinned
    assert find_model_directory(pinned).name == first
    assert find_model_directory(config()).name == repository.head


def test_pinning_keeps_the_commit_of_the_run_that_goes_on(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    recorded = pin_model(config())
    repository.commit({"generation_config.json": b"{}"})
    assert pin_model(config(), recorded) == recorded
    assert pin_model(config(f"hf://{REPO}@main"), recorded) == recorded
    assert pin_model(config(), config("hf://owner/other@" + "0" * 40)).path == f"hf://{REPO}@{repository.head}"
    assert pin_model(config(), config(f"hf://{REPO}")).path == f"hf://{REPO}@{repository.head}"
    assert pin_model(config(f"hf://{REPO}@{repository.head}"), recorded).path != recorded.path


@pytest.mark.parametrize("path", [None, "/models/qwen3", "models/qwen3"])
def test_pinning_leaves_directories_alone(path: str | None) -> None:
    assert pin_model(ModelConfig(path=path)) == ModelConfig(path=path)


def test_a_branch_is_had_by_its_name(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    first = repository.head
    repository.commit({"generation_config.json": b"{}"})
    assert find_model_directory(config(f"hf://{REPO}@{first}")).name == first
    assert find_model_directory(config(f"hf://{REPO}@main")).name == repository.head


def test_a_gated_model_without_a_token(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY, gated=True)
    message = refusal()
    assert f"model.path=hf://{REPO}@" in message
    assert "is gated, and no token is set" in message
    assert f"accept its licence at {hub.url}/{REPO}" in message
    assert "set HF_TOKEN" in message


def test_a_gated_model_whose_licence_was_not_accepted(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY, gated=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "the account of the token that is set has not been given access" in refusal()


def test_a_gated_model_with_access(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY, gated=True, accepted={TOKEN})
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert find_model_directory(config()).is_dir()


def test_no_such_model(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal("hf://owner/none")
    assert "model.path=hf://owner/none is no public model of the hub, and no token is set" in message
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "is no model that the hub shows to the token that is set" in refusal("hf://owner/none")


def test_a_private_model_is_had_with_a_token(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY, private=True)
    assert "no public model" in refusal()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert find_model_directory(config()).is_dir()


def test_a_token_that_is_not_valid(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    message = refusal()
    assert "the token that is set is not valid" in message
    assert "hf_expired" not in message


def test_no_such_revision(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    message = refusal(f"hf://{REPO}@v9")
    assert f"model.path=hf://{REPO}@v9 has no revision 'v9'; leave it out for the latest" in message
    assert f"{hub.url}/{REPO}/commits/main" in message


def test_no_network_and_no_copy(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    hub.close()
    message = refusal()
    assert f"cannot be had from {hub.url}" in message
    assert f"no copy of it is cached in {constants.HF_HUB_CACHE}" in message
    assert "set model.path to a model directory on this disk" in message


def test_no_network_but_a_copy(hub: LoopbackHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.add_model(REPO, TINY)
    directory = find_model_directory(config())
    hub.close()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert find_model_directory(config()) == directory
    assert f"the cached copy of commit {directory.name} is used" in caplog.text


def test_no_network_and_half_a_copy(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    directory = find_model_directory(config())
    (directory / "model.safetensors").unlink()
    hub.close()
    assert f"the copy in {directory} is not whole" in refusal()


def test_offline_on_purpose(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = refusal()
    assert "HF_HUB_OFFLINE is set" in message
    assert "unset HF_HUB_OFFLINE" in message
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    directory = find_model_directory(config())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model_directory(config()) == directory


def test_a_connection_that_is_cut_is_made_again(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    repository.cuts["model.safetensors"] = [len(TINY["model.safetensors"]) // 2]
    directory = find_model_directory(config())
    assert (directory / "model.safetensors").read_bytes() == TINY["model.safetensors"]
    assert hub.downloads().count("model.safetensors") == 2


def test_a_connection_that_is_cut_every_time(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = hub.add_model(REPO, TINY)
    repository.cuts["model.safetensors"] = [100_000] * 20
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    message = refusal()
    assert f"cannot be had from {hub.url}" in message
    assert "is not whole" in message
    repository.cuts.clear()
    assert find_model_directory(config()).is_dir()


def test_a_shard_that_the_index_names_and_the_hub_lacks(hub: LoopbackHub) -> None:
    files = sharded()
    del files["model-00002-of-00002.safetensors"]
    hub.add_model(REPO, files)
    assert "lacks model-00002-of-00002.safetensors, which its model.safetensors.index.json names" in refusal()


def test_weights_in_another_form_are_refused_before_anything_is_downloaded(hub: LoopbackHub) -> None:
    hub.add_model(REPO, {"config.json": b"{}", "pytorch_model.bin": b"x", "tokenizer.json": b"{}"})
    message = refusal()
    assert "has its weights in pytorch_model.bin and not in *.safetensors" in message
    assert "save_pretrained(DIR)" in message
    assert hub.downloads() == []


def test_an_adapter_is_refused(hub: LoopbackHub) -> None:
    hub.add_model(REPO, {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"})
    assert "holds an adapter, not a model; merge it" in refusal()


def test_a_model_that_does_not_fit_on_the_disk_is_refused_before_it_is_downloaded(hub: LoopbackHub) -> None:
    repository = hub.add_model(REPO, TINY)
    free = shutil.disk_usage(Path(constants.HF_HOME)).free
    repository.sizes["model.safetensors"] = free * 2 + 10**9
    message = refusal()
    assert "are free; make room, or set HF_HOME to a directory on another disk" in message
    assert hub.downloads() == []


def test_the_cached_directory_is_found_without_asking(hub: LoopbackHub) -> None:
    hub.add_model(REPO, TINY)
    pinned = pin_model(config())
    assert find_cached_directory(pinned) is None
    directory = find_model_directory(pinned)
    hub.asked.clear()
    assert find_cached_directory(pinned) == directory
    assert find_cached_directory(config()) is None
    assert find_cached_directory(ModelConfig()) == EMBEDDED_MODEL
    assert hub.asked == []
