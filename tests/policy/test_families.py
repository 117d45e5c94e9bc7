"""What a `config.json` describes: published models, keys left out, and what is refused by name."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.policy.published_configs import PUBLISHED

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, Rope
from agent_tunix.policy.families import FAMILIES, family_of, read_architecture
from agent_tunix.policy.tensors import list_tensors

LLAMA = PUBLISHED["meta-llama/Llama-3.2-1B-Instruct"].config
QWEN2 = PUBLISHED["Qwen/Qwen2.5-7B-Instruct"].config
QWEN3 = PUBLISHED["Qwen/Qwen3-0.6B"].config
GEMMA2 = PUBLISHED["google/gemma-2-2b-it"].config
GEMMA3_TEXT = PUBLISHED["google/gemma-3-1b-it"].config
GEMMA3 = PUBLISHED["google/gemma-3-4b-it"].config


def read(directory: Path, config: Any) -> Architecture:
    (directory / "config.json").write_text(json.dumps(config))
    return read_architecture(directory)


def change(config: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The configuration with other values; `...` leaves a key out."""
    return {name: value for name, value in {**config, **settings}.items() if value is not ...}


# Published models.


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_the_parameters_that_its_page_counts(name: str, tmp_path: Path) -> None:
    published = PUBLISHED[name]
    counted = sum(math.prod(tensor.shape) for tensor in list_tensors(read(tmp_path, published.config)))
    assert counted == published.parameters - published.vision_parameters


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", {"head_dim": 64, "qkv_bias": True, "qk_norm": False, "tied_embeddings": True}),
        ("Qwen/Qwen2.5-7B-Instruct", {"head_dim": 128, "qkv_bias": True, "tied_embeddings": False}),
        ("Qwen/Qwen3-0.6B", {"head_dim": 128, "qkv_bias": False, "qk_norm": True, "tied_embeddings": True}),
        ("Qwen/Qwen3-4B-Instruct-2507", {"rope": {"full_attention": Rope(5e6)}}),
        ("Qwen/Qwen3-32B", {"num_heads": 64, "num_kv_heads": 8, "tied_embeddings": False}),
        (
            "meta-llama/Llama-3.2-1B-Instruct",
            {"rope": {"full_attention": Rope(5e5, "llama3", 32.0, 1.0, 4.0, 8192)}, "norm_eps": 1e-5, "head_dim": 64},
        ),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            {"rope": {"full_attention": Rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192)}, "head_dim": 128, "window": None},
        ),
        (
            "google/gemma-2-27b-it",
            {
                "query_scale": 144**-0.5,
                "attention_softcap": 50.0,
                "final_softcap": 30.0,
                "window": 4096,
                "rope": {"full_attention": Rope(1e4), "sliding_attention": Rope(1e4)},
                "layer_kinds": ("sliding_attention", "full_attention") * 23,
            },
        ),
        (
            "google/gemma-3-270m-it",
            {
                "query_scale": 1 / 16,
                "attention_softcap": None,
                "final_softcap": None,
                "window": 512,
                "rope": {"full_attention": Rope(1e6), "sliding_attention": Rope(1e4)},
                "layer_kinds": (*["sliding_attention"] * 5, "full_attention") * 3,
                "embedding_scale": 640**0.5,
                "norm_offset": 1.0,
                "sandwich_norms": True,
                "qk_norm": True,
            },
        ),
        (
            "google/gemma-3-4b-it",
            {
                "model_type": "gemma3",
                "vocab_size": 262_208,
                "num_heads": 8,
                "num_kv_heads": 4,
                "head_dim": 256,
                "window": 1024,
                "rope": {"full_attention": Rope(1e6, "linear", 8.0), "sliding_attention": Rope(1e4)},
                "layer_kinds": ((*["sliding_attention"] * 5, "full_attention") * 6)[:34],
                "tied_embeddings": True,
            },
        ),
        ("google/gemma-3-27b-it", {"head_dim": 128, "query_scale": 168**-0.5, "num_kv_heads": 16}),
    ],
)
def test_a_published_model_is_read_as_it_is_computed(name: str, expected: dict[str, Any], tmp_path: Path) -> None:
    architecture = read(tmp_path, PUBLISHED[name].config)
    assert {field: getattr(architecture, field) for field in expected} == expected


# Keys left out, and keys by other names.


@pytest.mark.parametrize(
    ("config", "field", "expected"),
    [
        (change(LLAMA, head_dim=...), "head_dim", 64),
        (change(LLAMA, num_key_value_heads=...), "num_kv_heads", 32),
        (change(LLAMA, rope_theta=..., rope_scaling=None), "rope", {"full_attention": Rope(1e4)}),
        (change(LLAMA, tie_word_embeddings=...), "tied_embeddings", False),
        (change(QWEN3, head_dim=...), "head_dim", 128),
        (change(GEMMA2, attn_logit_softcapping=...), "attention_softcap", 50.0),
        (change(GEMMA2, attn_logit_softcapping=None), "attention_softcap", None),
        (change(GEMMA2, final_logit_softcapping=...), "final_softcap", 30.0),
        (change(GEMMA2, final_logit_softcapping=None), "final_softcap", None),
        (change(GEMMA3_TEXT, num_attention_heads=...), "num_heads", 8),
        (change(GEMMA3_TEXT, head_dim=...), "head_dim", 256),
        (
            change(GEMMA3_TEXT, num_hidden_layers=4, sliding_window_pattern=2),
            "layer_kinds",
            ("sliding_attention", "full_attention") * 2,
        ),
        (
            change(GEMMA3_TEXT, num_hidden_layers=2, layer_types=["full_attention"] * 2, sliding_window=None),
            "window",
            None,
        ),
    ],
    ids=str,
)
def test_a_key_that_is_left_out_has_the_meaning_of_the_family(
    config: dict[str, Any], field: str, expected: Any, tmp_path: Path
) -> None:
    assert getattr(read(tmp_path, config), field) == expected


_STRETCH = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 3e5}}, Rope(3e5)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, Rope(5e5, "linear", 2.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, Rope(5e5, "linear", 4.0)),
        # As in transformers, the older key counts where both are there.
        (
            {"rope_scaling": {"type": "linear", "factor": 4}, "rope_parameters": {"rope_type": "default"}},
            Rope(5e5, "linear", 4.0),
        ),
        (
            {"rope_scaling": {**_STRETCH, "original_max_position_embeddings": 4096}},
            Rope(5e5, "llama3", 8.0, 1.0, 4.0, 4096),
        ),
        ({"rope_scaling": _STRETCH}, Rope(5e5, "llama3", 8.0, 1.0, 4.0, 131_072)),
        (
            {"rope_scaling": _STRETCH, "original_max_position_embeddings": 2048},
            Rope(5e5, "llama3", 8.0, 1.0, 4.0, 2048),
        ),
    ],
    ids=str,
)
def test_rotary_embeddings_are_read_from_either_key(settings: dict[str, Any], expected: Rope, tmp_path: Path) -> None:
    config = change(LLAMA, **{"rope_scaling": ..., **settings})
    assert read(tmp_path, config).rope == {"full_attention": expected}


def test_gemma_3_has_a_rotary_embedding_for_each_kind_of_layer(tmp_path: Path) -> None:
    by_kind = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    config = change(GEMMA3_TEXT, rope_theta=..., rope_local_base_freq=..., rope_parameters=by_kind)
    assert read(tmp_path, config).rope == {"full_attention": Rope(2e6, "linear", 8.0), "sliding_attention": Rope(2e4)}


def test_a_file_may_hold_what_no_model_is_computed_by(tmp_path: Path) -> None:
    assert read(tmp_path, {**QWEN3, "unsloth_fixed": True, "torch_dtype": "float16"}) == read(tmp_path, QWEN3)


@pytest.mark.parametrize(
    "name", ["gemma3", "gemma3_text", "Gemma-3", "qwen2", "qwen2.5", "Qwen2_5", "llama3.2", "llama"]
)
def test_every_common_name_means_a_family(name: str) -> None:
    assert family_of(name) in FAMILIES


def test_names_of_one_family_agree() -> None:
    assert family_of("gemma3_text") == family_of("gemma3") != family_of("gemma2")
    assert family_of("Qwen2.5") == family_of("qwen2") != family_of("qwen3")
    assert family_of("llama3") == family_of("llama_3.1") == family_of("llama")


# What is refused.


@pytest.mark.parametrize(
    ("config", "said"),
    [
        *((change(QWEN3, model_type=name), f"model_type '{name}'; supported: ") for name in ("qwen3_moe", "mixtral")),
        *(
            (change(QWEN3, model_type=name), f"model_type '{name}'")
            for name in ("granite", "qwen3_next", "gemma3n_text")
        ),
        ([], "must hold an object, not list"),
        # Sizes.
        *((change(LLAMA, **{name: ...}), f"lacks '{name}'") for name in ("hidden_size", "vocab_size", "rms_norm_eps")),
        (change(QWEN2, num_key_value_heads=...), "lacks 'num_key_value_heads'"),
        (change(LLAMA, hidden_size="2048"), "hidden_size must be a whole number above 0, not '2048'"),
        (change(LLAMA, num_attention_heads=0), "num_attention_heads must be a whole number above 0, not 0"),
        (change(LLAMA, num_hidden_layers=True), "num_hidden_layers must be a whole number above 0, not True"),
        (change(LLAMA, num_key_value_heads=5), "num_attention_heads 32 must be divisible by num_key_value_heads 5"),
        (change(LLAMA, head_dim=63), "head_dim 63 must be even"),
        (change(LLAMA, rms_norm_eps=-1), "rms_norm_eps must be a number above 0, not -1"),
        (change(LLAMA, tie_word_embeddings="yes"), "tie_word_embeddings must be true or false"),
        (change(GEMMA2, sliding_window=0), "sliding_window must be a whole number above 0"),
        (change(GEMMA2, attn_logit_softcapping=0), "attn_logit_softcapping must be a number above 0"),
        (change(GEMMA3, text_config=...), "lacks 'text_config'"),
        (change(GEMMA3, text_config=[1]), "text_config must be an object"),
        # Rotary embeddings.
        *(
            (change(LLAMA, rope_scaling={"rope_type": name, "factor": 4.0}), f"rope_scaling of type '{name}' is not")
            for name in ("yarn", "dynamic", "longrope", "su", "mrope")
        ),
        (change(LLAMA, rope_scaling={"type": "yarn", "factor": 4.0}), "rope_scaling of type 'yarn' is not"),
        (change(LLAMA, rope_scaling={"rope_type": "llama3", "factor": 8.0}), "lacks 'rope_scaling.low_freq_factor'"),
        (change(LLAMA, rope_scaling={"rope_type": "linear", "factor": 0.5}), "rope_scaling.factor must be at least 1"),
        (change(LLAMA, rope_scaling={**_STRETCH, "low_freq_factor": 4.0}), "low_freq_factor 4 must be below"),
        (change(LLAMA, rope_scaling=[8.0]), "rope_scaling must be an object"),
        (change(LLAMA, rope_theta=0), "rope_theta must be a number above 0"),
        (change(LLAMA, partial_rotary_factor=0.5), "partial_rotary_factor = 0.5 is not supported"),
        (
            change(LLAMA, rope_scaling=None, rope_parameters={"partial_rotary_factor": 0.5}),
            "rope_parameters.partial_rotary_factor = 0.5 is not supported, only 1.0",
        ),
        (
            change(QWEN3, rope_parameters={"full_attention": {"rope_theta": 1e6}}),
            "rope_parameters for each kind of layer is not supported",
        ),
        (change(GEMMA3_TEXT, rope_parameters={"rope_theta": 1e6}), "must hold an object for each kind of layer"),
        (change(GEMMA3_TEXT, rope_scaling={"rope_type": "yarn"}), "rope_scaling of type 'yarn' is not supported"),
        # What a token sees.
        (change(QWEN2, use_sliding_window=True), "use_sliding_window = True is not supported, only False"),
        (change(QWEN3, use_sliding_window=True), "use_sliding_window = True is not supported"),
        (change(QWEN3, layer_types=["sliding_attention"] * 28), "layer_types must name 28 layers of full_attention"),
        (change(QWEN3, layer_types=["linear_attention"] * 28), "layer_types must name 28 layers of full_attention"),
        (
            change(GEMMA3_TEXT, layer_types=["chunked_attention"] * 26),
            "layer_types must name 26 layers of full_attention",
        ),
        (change(GEMMA3_TEXT, layer_types=["full_attention"]), "layer_types must name 26 layers"),
        (change(GEMMA3_TEXT, use_bidirectional_attention=True), "use_bidirectional_attention = True is not"),
        (change(QWEN2, is_causal=False), "is_causal = False is not supported"),
        (change(LLAMA, sliding_window=4096), "sliding_window = 4096 is not supported"),
        (change(LLAMA, attention_chunk_size=8192), "attention_chunk_size = 8192 is not supported"),
        (change(LLAMA, no_rope_layers=[1, 1, 1, 0] * 4), "no_rope_layers = "),
        (change(QWEN2, is_encoder_decoder=True), "is_encoder_decoder = True is not supported"),
        # Parts of a layer.
        (change(LLAMA, attention_bias=True), "attention_bias = True is not supported, only False"),
        (change(LLAMA, mlp_bias=True), "mlp_bias = True is not supported"),
        (change(QWEN3, attention_bias=True), "attention_bias = True is not supported"),
        (change(LLAMA, hidden_act="gelu"), "hidden_act = 'gelu' is not supported, only 'silu'"),
        (change(GEMMA2, hidden_activation="gelu"), "hidden_activation = 'gelu' is not supported"),
        (change(QWEN3, num_experts=128), "num_experts = 128 is not supported"),
        (change(LLAMA, num_local_experts=8), "num_local_experts = 8 is not supported"),
        # Multipliers.
        (change(LLAMA, attention_multiplier=0.015625), "attention_multiplier = 0.015625 is not supported"),
        (change(LLAMA, residual_multiplier=0.22), "residual_multiplier = 0.22 is not supported, only 1.0"),
        (change(LLAMA, logits_scaling=8.0), "logits_scaling = 8.0 is not supported"),
        (change(LLAMA, scale_embeddings=True), "scale_embeddings = True is not supported"),
        (change(LLAMA, attn_logit_softcapping=50.0), "attn_logit_softcapping = 50.0 is not supported"),
        (change(QWEN3, query_pre_attn_scalar=256), "query_pre_attn_scalar = 256 is not supported"),
        (change(GEMMA2, tie_word_embeddings=False), "tie_word_embeddings = False is not supported, only True"),
        (change(GEMMA3, tie_word_embeddings=False), "tie_word_embeddings = False is not supported"),
        # Quantised weights, and code of their own.
        *(
            (change(LLAMA, quantization_config={"quant_method": method}), f"weights are quantised .*{method}")
            for method in ("gptq", "awq", "bitsandbytes", "fp8")
        ),
        (change(GEMMA3, quantization_config={"quant_method": "gptq"}), "weights are quantised"),
        (change(QWEN3, quantization={"bits": 4}), "weights are quantised"),
        (change(QWEN2, auto_map={"AutoModelForCausalLM": "modeling_x.X"}), "auto_map gives the model code of its own"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_decoder_does_not_do_is_refused_by_name(config: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said) as raised:
        read(tmp_path, config)
    assert str(tmp_path / "config.json") in str(raised.value)
