"""Models from Kaggle."""

import logging
from pathlib import Path

import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_cached_directory, find_model_directory, pin_model
from tests.hubs.loopback_kaggle import LoopbackKaggle

TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
NAME = "owner/tiny/transformers/base"
CONFIG = ModelConfig(path=f"kaggle://{NAME}")


def refusal(config: ModelConfig = CONFIG) -> str:
    with pytest.raises(ModelError) as caught:
        find_model_directory(config)
    return str(caught.value)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_file_arrives_byte_for_byte(kaggle: LoopbackKaggle) -> None:
    kaggle.add_model(NAME, TINY)
    assert contents(find_model_directory(CONFIG)) == TINY


def test_pinning_names_the_version_and_keeps_it(kaggle: LoopbackKaggle) -> None:
    model = kaggle.add_model(NAME, TINY)
    pinned = pin_model(CONFIG)
    assert pinned.path == f"kaggle://{NAME}/1"
    model.versions.append({**TINY, "generation_config.json": b"{}"})
    assert pin_model(CONFIG, pinned) == pinned
    assert contents(find_model_directory(pinned)) == TINY
    assert find_model_directory(CONFIG).name == "2"


def test_a_version_that_is_cached_is_had_without_asking(kaggle: LoopbackKaggle) -> None:
    kaggle.add_model(NAME, TINY)
    pinned = pin_model(CONFIG)
    kaggle.asked.clear()
    assert find_cached_directory(pinned) == find_model_directory(pinned)
    assert kaggle.asked == []


def test_no_such_model(kaggle: LoopbackKaggle) -> None:
    message = refusal()
    assert f"model.path=kaggle://{NAME} is no model on Kaggle that you may see" in message
    assert f"https://www.kaggle.com/models/{NAME}" in message


@pytest.mark.parametrize("status", [401, 403])
def test_a_model_whose_licence_was_not_accepted(kaggle: LoopbackKaggle, status: int) -> None:
    kaggle.add_model(NAME, TINY, status=status)
    message = refusal()
    assert f"accept its licence at https://www.kaggle.com/models/{NAME}" in message
    assert "KAGGLE_USERNAME and KAGGLE_KEY" in message


def test_a_kaggle_that_is_ill(kaggle: LoopbackKaggle) -> None:
    kaggle.add_model(NAME, TINY, status=503)
    assert "status 503 by Kaggle; try again later" in refusal()


def test_no_network_and_no_copy(kaggle: LoopbackKaggle) -> None:
    kaggle.close()
    message = refusal()
    assert "cannot be had from Kaggle" in message
    assert "no copy of it is in" in message
    assert "set model.path to a model directory on this disk" in message


def test_no_network_but_a_copy(kaggle: LoopbackKaggle, caplog: pytest.LogCaptureFixture) -> None:
    kaggle.add_model(NAME, TINY)
    directory = find_model_directory(CONFIG)
    kaggle.close()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert find_model_directory(CONFIG) == directory
    assert "the cached copy in" in caplog.text


def test_a_connection_that_is_cut(kaggle: LoopbackKaggle) -> None:
    model = kaggle.add_model(NAME, TINY, cut_after=1000)
    assert "did not arrive whole" in refusal()
    model.cut_after = None
    assert contents(find_model_directory(CONFIG)) == TINY


def test_weights_in_another_form(kaggle: LoopbackKaggle) -> None:
    kaggle.add_model(NAME, {"config.json": b"{}", "model.weights.h5": b"x"})
    assert "has its weights in model.weights.h5" in refusal()
