"""The models that `conf/model` names."""

from pathlib import Path

import pytest

from agent_tunix.config.compose import compose_overrides, find_conf_directory
from agent_tunix.policy.families import FAMILIES
from agent_tunix.policy.location import parse_location

NAMED = sorted(
    path for path in find_conf_directory().glob("model/*.yaml") if "\npath: hf://" in path.read_text("utf-8")
)


@pytest.mark.parametrize("file", NAMED, ids=lambda file: file.stem)
def test_a_named_model_can_be_trained_and_says_its_licence(file: Path) -> None:
    model = compose_overrides([f"model={file.stem}"]).model
    location = parse_location(model.path)
    assert location is not None
    assert location.revision is None
    assert model.model_family in FAMILIES
    assert (model.lora_rank, model.lora_alpha) == (16, 32.0)
    assert file.stem.endswith(model.model_size.replace(".", "_"))
    text = file.read_text("utf-8")
    assert f"https://huggingface.co/{location.name}\n" in text
    gated = location.name.startswith(("google/", "meta-llama/"))
    assert ("; gated: accept" in text) == gated
    assert ("; not gated." in text) != gated


def test_every_size_that_is_promised_is_named() -> None:
    sizes = {
        "gemma3": "270m 1b 4b 12b 27b",
        "gemma2": "2b 9b",
        "qwen2_5": "0_5b 1_5b 3b 7b",
        "qwen3": "0_6b 1_7b 4b 8b 14b 32b",
        "llama3_2": "1b 3b",
        "llama3_1": "8b",
    }
    assert {file.stem for file in NAMED} == {f"{name}_{size}" for name, of in sizes.items() for size in of.split()}
