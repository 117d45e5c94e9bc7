"""Every family equals transformers: logits, greedy completions, export, and what published configurations mean.

Needs the optional group `parity`: pip install -e '.[parity]'. `python -m tests.parity.table` prints the figures.
"""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.parity import table
from tests.parity.families import FAMILIES
from tests.policy.padding import pad
from tests.policy.published_configs import PUBLISHED
from tests.policy.reference_decoder import reference_logits
from tests.policy.support import FAMILY_CONFIGS, make_family

from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensors import list_tensors
from agent_tunix.policy.network.rotation import frequencies

REASON = "needs the optional group `parity`: pip install -e '.[parity]'"
torch: Any = pytest.importorskip("torch", reason=REASON)
pytest.importorskip("peft", reason=REASON)
transformers: Any = importlib.import_module("transformers")
checkpoints: Any = importlib.import_module("tests.parity.checkpoints")
comparing: Any = importlib.import_module("tests.parity.comparing")

# Warnings of torch, transformers and PEFT are theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_equals_transformers_and_its_exports_do_too(family: str, tmp_path: Path) -> None:
    """Logits on both sides of padding, longer than the window, through the cache; greedy completions; PEFT."""
    measured = table.measure(family, tmp_path)
    assert measured.holds, measured


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_we_are_no_further_from_float32_than_transformers(family: str, tmp_path: Path) -> None:
    checkpoints.make_checkpoint(family, tmp_path)
    batch = pad(comparing.texts(), "left", 0)
    exact = comparing.their_logits(checkpoints.load_checkpoint(tmp_path), batch)[batch.filled]

    def error(logits: np.ndarray) -> float:
        return float(np.sqrt(((logits[batch.filled] - exact) ** 2).mean()))

    ours = error(comparing.our_logits(comparing.load_ours(tmp_path, dtype="bfloat16", lora_rank=1), batch))
    theirs = error(comparing.their_logits(checkpoints.load_checkpoint(tmp_path, "bfloat16"), batch))
    assert 0 < ours < 1.25 * theirs


@pytest.mark.parametrize("name", FAMILY_CONFIGS)
def test_the_forward_pass_in_numpy_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    """So that tests/policy/test_decoder.py, which compares with it, needs no torch."""
    directory = make_family(tmp_path / "model", name)
    config = json.loads((directory / "config.json").read_text())
    classes = {
        "qwen2": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
        "qwen3_moe": "Qwen3MoeForCausalLM",
        "llama": "LlamaForCausalLM",
        "olmo3": "Olmo3ForCausalLM",
        "smollm3": "SmolLM3ForCausalLM",
        "qwen3_5_text": "Qwen3_5ForCausalLM",
        "qwen3_5": "Qwen3_5ForConditionalGeneration",
        "gemma2": "Gemma2ForCausalLM",
        "gemma3_text": "Gemma3ForCausalLM",
        "gemma4_text": "Gemma4ForCausalLM",
        "gemma3": "Gemma3ForConditionalGeneration",
    }
    if "vision_config" in config:
        family = "Gemma 3, with vision" if name == "gemma3" else "Qwen 3.5, with vision, tied"
        config["vision_config"] = FAMILIES[family][2]["vision_config"]
    (directory / "config.json").write_text(json.dumps({**config, "architectures": [classes[config["model_type"]]]}))
    tokens = np.random.default_rng(1).integers(0, 32, 13)
    batch = pad([tokens], "left", 0)
    theirs = comparing.their_logits(checkpoints.load_checkpoint(directory), batch)[0]
    np.testing.assert_allclose(reference_logits(directory, tokens), theirs, atol=1e-4)


# Published models, as their configurations are read.


def theirs_of(name: str) -> Any:
    """The configuration as transformers reads it, and the model without weights."""
    config = PUBLISHED[name].config
    read = transformers.AutoConfig.for_model(**json.loads(json.dumps(config)))
    with torch.device("meta"):
        return getattr(transformers, config["architectures"][0])(read)


def ours_of(name: str, directory: Path) -> Any:
    (directory / "config.json").write_text(json.dumps(PUBLISHED[name].config))
    return read_architecture(directory)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_the_tensors_that_transformers_gives_it(name: str, tmp_path: Path) -> None:
    found = {tensor.name: tensor.shape for tensor in list_tensors(ours_of(name, tmp_path))}
    expected: dict[str, tuple[int, ...]] = {}
    theirs = theirs_of(name)
    scalars = (pair for pair in theirs.named_buffers() if pair[0].endswith("layer_scalar"))
    for full, parameter in (*theirs.named_parameters(), *scalars):
        if not {"vision_tower", "multi_modal_projector", "visual"}.intersection(full.split(".")):
            plain = full.removeprefix("model.").removeprefix("language_model.")
            expected |= dict(as_stored(plain, tuple(parameter.shape)))
    assert found == expected


def as_stored(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A parameter as files have it: experts apart, which transformers holds in stacks, the first two in one."""
    module, _, leaf = name.rpartition(".")
    if not module.endswith(".experts"):
        yield name, shape
        return
    stacked = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else (leaf,)
    for part in stacked:
        for number in range(shape[0]):
            yield f"{module}.{number}.{part}.weight", (shape[1] // len(stacked), shape[2])


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_rotary_frequencies_of_a_published_model_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    architecture = ours_of(name, tmp_path)
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(PUBLISHED[name].config)))
    config = getattr(config, "text_config", config)
    family = config.model_type.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    names = [name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    (rotary,) = (vars(module)[name](config) for name in names)
    by_kind = hasattr(rotary, "full_attention_inv_freq")
    ropes = dict(architecture.rope)
    if family == "olmo3" and not by_kind:  # versions that stretch sliding layers too, which the published models do not
        assert ropes.pop("sliding_attention").kind == "default"
    for kind, rope in ropes.items():
        theirs, magnitude = (
            getattr(rotary, f"{kind}_{name}" if by_kind else name) for name in ("inv_freq", "attention_scaling")
        )
        head_dim = architecture.head_dim_of(architecture.layer_kinds.index(kind))
        np.testing.assert_allclose(np.asarray(frequencies(rope, head_dim)), theirs.numpy(), rtol=1e-6)
        assert rope.magnitude == pytest.approx(magnitude)
    text_layers = getattr(config, "layer_types", None)
    if text_layers is not None:
        assert list(architecture.layer_kinds) == text_layers
    if "sliding_attention" in architecture.layer_kinds:
        assert architecture.window == config.sliding_window
