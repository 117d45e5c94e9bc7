"""Architectures read from `config.json`: published models, keys left out, and features refused by name."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.policy.published_configs import PUBLISHED
from tests.raising import raises

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, DeltaNetSizes, Rope
from agent_tunix.policy.families import FAMILIES, family_of, read_architecture
from agent_tunix.policy.files.tensors import list_tensors

LLAMA = PUBLISHED["meta-llama/Llama-3.2-1B-Instruct"].config
QWEN2 = PUBLISHED["Qwen/Qwen2.5-7B-Instruct"].config
QWEN3 = PUBLISHED["Qwen/Qwen3-0.6B"].config
QWEN3_5 = PUBLISHED["Qwen/Qwen3.5-0.8B"].config
QWEN3_5_TEXT = QWEN3_5["text_config"]
QWEN3_MOE = PUBLISHED["Qwen/Qwen3-30B-A3B"].config
SMOLLM3 = PUBLISHED["HuggingFaceTB/SmolLM3-3B"].config
OLMO3 = PUBLISHED["allenai/Olmo-3-7B-Instruct"].config
GEMMA2 = PUBLISHED["google/gemma-2-2b-it"].config
GEMMA3_TEXT = PUBLISHED["google/gemma-3-1b-it"].config
GEMMA4_TEXT = PUBLISHED["google/gemma-4-E2B-it"].config
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
        ("Qwen/Qwen3-0.6B", {"head_dim": 128, "qkv_bias": False, "qk_norm": True, "tied_embeddings": True}),
        (
            "Qwen/Qwen3.5-0.8B",
            {
                "rope": {"full_attention": Rope(1e7, rotated_share=0.25)},
                "layer_kinds": (*["linear_attention"] * 3, "full_attention") * 6,
                "delta_net": DeltaNetSizes(16, 16, 128, 128, 4),
                "attention_gate": True,
                "norm_offset": 1.0,
                "tied_embeddings": True,
            },
        ),
        ("Qwen/Qwen3-4B-Instruct-2507", {"rope": {"full_attention": Rope(5e6)}}),
        (
            "meta-llama/Llama-3.2-1B-Instruct",
            {"rope": {"full_attention": Rope(5e5, "llama3", 32.0, 1.0, 4.0, 8192)}, "norm_eps": 1e-5, "head_dim": 64},
        ),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            {"rope": {"full_attention": Rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192)}, "head_dim": 128, "window": None},
        ),
        (
            "HuggingFaceTB/SmolLM3-3B",
            {"unrotated_layers": tuple(range(3, 36, 4)), "window": None, "tied_embeddings": True, "head_dim": 128},
        ),
        (
            "allenai/Olmo-3-7B-Instruct",
            {
                "rope": {
                    "full_attention": Rope(5e5, "yarn", 8.0, 1.0, 32.0, 8192, 1.2079441541679836),
                    "sliding_attention": Rope(5e5),
                },
                "layer_kinds": (*["sliding_attention"] * 3, "full_attention") * 8,
                "window": 4096,
                "joint_qk_norm": True,
                "input_norms": False,
                "output_norms": True,
            },
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
                "output_norms": True,
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
        (
            "google/gemma-4-E4B-it",
            {
                "query_scale": 1.0,
                "final_softcap": 30.0,
                "window": 512,
                "head_dim": 256,
                "global_head_dim": 512,
                "rope": {
                    "full_attention": Rope(1e6, "proportional", rotated_share=0.25),
                    "sliding_attention": Rope(1e4),
                },
                "layer_kinds": (*["sliding_attention"] * 5, "full_attention") * 7,
                "num_borrowing_layers": 18,
                "wide_borrowing_mlps": False,
                "layer_embedding_size": 256,
                "norm_offset": 0.0,
                "value_norm": True,
            },
        ),
    ],
)
def test_a_published_model_is_read_as_it_is_computed(name: str, expected: dict[str, Any], tmp_path: Path) -> None:
    architecture = read(tmp_path, PUBLISHED[name].config)
    assert {field: getattr(architecture, field) for field in expected} == expected


def test_layers_of_gemma_4_borrow_keys_and_values_of_the_last_layer_of_their_kind(tmp_path: Path) -> None:
    architecture = read(tmp_path, GEMMA4_TEXT)
    assert [architecture.lender_of(layer) for layer in (14, 15, 19, 34)] == [None, 13, 14, 14]
    assert [layer for layer in range(35) if architecture.lends(layer)] == [13, 14]
    assert architecture.mlp_size_of(14) * 2 == architecture.mlp_size_of(15)


# Keys left out, and keys by other names.


@pytest.mark.parametrize(
    ("config", "field", "expected"),
    [
        (change(LLAMA, head_dim=...), "head_dim", 64),
        (change(LLAMA, num_key_value_heads=...), "num_kv_heads", 32),
        (change(LLAMA, rope_theta=..., rope_scaling=None), "rope", {"full_attention": Rope(1e4)}),
        (change(LLAMA, tie_word_embeddings=...), "tied_embeddings", False),
        (change(QWEN3, head_dim=...), "head_dim", 128),
        (change(QWEN3_5_TEXT, layer_types=...), "layer_kinds", (*["linear_attention"] * 3, "full_attention") * 6),
        (
            change(QWEN3_5_TEXT, rope_parameters={"rope_theta": 1e7}),
            "rope",
            {"full_attention": Rope(1e7, rotated_share=0.25)},
        ),
        (change(QWEN3_5_TEXT, linear_num_value_heads=...), "delta_net", DeltaNetSizes(16, 32, 128, 128, 4)),
        (change(QWEN3_5, tie_word_embeddings=...), "tied_embeddings", False),
        (change(QWEN3_MOE, num_experts=..., num_local_experts=64), "num_experts", 64),
        (
            change(QWEN3_MOE, num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[3]),
            "dense_layers",
            (0, 2, 3, 4),
        ),
        (change(SMOLLM3, no_rope_layers=..., num_hidden_layers=5, layer_types=...), "unrotated_layers", (3,)),
        (
            change(SMOLLM3, num_hidden_layers=4, layer_types=..., use_sliding_window=True, sliding_window=8),
            "layer_kinds",
            (*["full_attention"] * 3, "sliding_attention"),
        ),
        (change(OLMO3, num_key_value_heads=...), "num_kv_heads", 32),
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
        (change(GEMMA4_TEXT, global_head_dim=...), "global_head_dim", 512),
        (
            change(
                *(GEMMA4_TEXT,),
                global_head_dim=...,
                per_layer_config={str(n): {"head_dim": 128} for n in range(4, 35, 5)},
            ),
            "global_head_dim",
            128,
        ),
        (
            change(GEMMA3_TEXT, num_hidden_layers=2, layer_types=["full_attention"] * 2, sliding_window=None),
            "window",
            None,
        ),
    ],
    ids=str,
)
def test_a_key_left_out_has_a_default(config: dict[str, Any], field: str, expected: Any, tmp_path: Path) -> None:
    assert getattr(read(tmp_path, config), field) == expected


_STRETCH = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 3e5}}, Rope(3e5)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, Rope(5e5, "linear", 2.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, Rope(5e5, "linear", 4.0)),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1.0}}, Rope(5e5, "yarn", 1.0, 1.0, 32.0, 131_072)),
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


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("gemma2", ["Gemma-2"]),
        ("gemma3", ["gemma3", "gemma3_text", "Gemma-3"]),
        ("gemma4", ["gemma4", "gemma4_text", "Gemma-4"]),
        ("llama", ["llama", "llama3", "llama_3.1", "llama3.2"]),
        ("qwen2", ["qwen2", "qwen2.5", "Qwen2_5"]),
        ("olmo3", ["olmo3", "OLMo-3.1"]),
        ("qwen3", ["Qwen3"]),
        ("qwen3_5", ["qwen3_5", "Qwen3.5", "qwen3_5_text"]),
        ("qwen3_moe", ["qwen3_moe", "Qwen3-MoE"]),
        ("smollm3", ["SmolLM3"]),
    ],
)
def test_every_common_name_means_its_family(family: str, names: list[str]) -> None:
    assert {family_of(name) for name in names} == {family}
    assert family in FAMILIES


# Refused.

_LLAMA3 = {"rope_type": "llama3", "factor": 8.0}
_TRUNCATED = {**OLMO3["rope_scaling"], "truncate": False}
# Error code, base, and keys of which each alone is refused by its name.
REFUSED: list[tuple[str, list[tuple[dict[str, Any], dict[str, Any]]]]] = [
    (
        "invalid_model_config",
        [
            (LLAMA, dict.fromkeys(("hidden_size", "vocab_size", "rms_norm_eps", "num_hidden_layers"), ...)),
            (QWEN2, {"num_key_value_heads": ..., "intermediate_size": ...}),
            (GEMMA3, {"text_config": ...}),
            (LLAMA, {"rope_scaling": _LLAMA3}),
        ],
    ),
    (
        "invalid_model_config",
        [
            (LLAMA, {"hidden_size": "2048", "num_attention_heads": 0, "num_hidden_layers": True, "rope_theta": 0}),
            (LLAMA, {"num_key_value_heads": 5, "head_dim": 63, "rms_norm_eps": -1, "tie_word_embeddings": "yes"}),
            (LLAMA, {"rope_scaling": [8.0]}),
            (LLAMA, {"rope_scaling": {"rope_type": "linear", "factor": 0.5}}),
            (LLAMA, {"rope_scaling": {**_STRETCH, "low_freq_factor": 4.0}}),
            (GEMMA2, {"sliding_window": 0, "attn_logit_softcapping": 0}),
            (GEMMA3, {"text_config": [1]}),
            (QWEN3_5_TEXT, {"linear_num_value_heads": 24, "linear_conv_kernel_dim": 0, "full_attention_interval": 0}),
            (GEMMA4_TEXT, {"num_kv_shared_layers": 34, "hidden_size_per_layer_input": -1}),
            (QWEN3_MOE, {"num_experts_per_tok": 129, "mlp_only_layers": 3, "decoder_sparse_step": 0, "num_experts": 0}),
            (SMOLLM3, {"no_rope_layers": [1, 1, 1, 0]}),
            (SMOLLM3, {"no_rope_layers": [1, 2] * 18}),
            (OLMO3, {"rope_scaling": {**OLMO3["rope_scaling"], "beta_slow": 32.0}}),
        ],
    ),
    (
        "unsupported_model",
        [
            *(
                (LLAMA, {"rope_scaling": {"rope_type": name, "factor": 4.0}})
                for name in ("dynamic", "longrope", ["linear"])
            ),
            (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 4.0}}),
            (QWEN3, {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}),
            (GEMMA3_TEXT, {"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_type": "dynamic"}}),
            # For all layers, though some slide.
            (change(OLMO3, rope_scaling=...), {"rope_parameters": {**OLMO3["rope_scaling"], "rope_theta": 5e5}}),
        ],
    ),
    (
        "invalid_model_config",
        [
            *((QWEN3, {"layer_types": [f"{kind}_attention"] * 28}) for kind in ("sliding", "linear")),
            (SMOLLM3, {"layer_types": ["sliding_attention"] * 36}),
            (QWEN3_5_TEXT, {"layer_types": ["sliding_attention"] * 24}),
            *((GEMMA3_TEXT, {"layer_types": kinds}) for kinds in (["chunked_attention"] * 26, ["full_attention"])),
        ],
    ),
    (
        "unsupported_model",
        [
            (
                LLAMA,
                {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.5},
            ),
            (QWEN2, {"use_sliding_window": True, "is_causal": False, "is_encoder_decoder": True}),
            (
                QWEN3,
                {"use_sliding_window": True, "attention_bias": True, "num_experts": 128, "query_pre_attn_scalar": 256},
            ),
            (GEMMA3_TEXT, {"use_bidirectional_attention": True}),
            (QWEN3_5_TEXT, {"attention_bias": True, "num_experts": 256, "hidden_act": "gelu"}),
            (OLMO3, {"attention_bias": True, "use_sliding_window": True, "rope_scaling": _TRUNCATED}),
            (LLAMA, {"sliding_window": 4096, "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0] * 4}),
            (LLAMA, {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "num_local_experts": 8}),
            (LLAMA, {"attention_multiplier": 0.015625, "residual_multiplier": 0.22, "logits_scaling": 8.0}),
            (QWEN3_MOE, {"use_sliding_window": True, "attention_bias": True, "n_routed_experts": 8}),
            (LLAMA, {"scale_embeddings": True, "attn_logit_softcapping": 50.0}),
            (GEMMA2, {"hidden_activation": "gelu", "tie_word_embeddings": False}),
            (GEMMA3, {"tie_word_embeddings": False}),
            (GEMMA4_TEXT, {"enable_moe_block": True, "attention_k_eq_v": True, "vocab_size_per_layer_input": 8}),
            (GEMMA4_TEXT, {"use_bidirectional_attention": "all", "per_layer_config": {"4": {"head_dim": 128}}}),
        ],
    ),
    (
        "unsupported_model",
        [
            (LLAMA, {"quantization_config": {"quant_method": "gptq"}}),
            (GEMMA3, {"quantization_config": {"quant_method": "awq"}}),
            (QWEN3, {"quantization": {"bits": 4}, "compression_config": {"format": "x"}}),
        ],
    ),
    ("unsupported_model", [(QWEN2, {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}})]),
]


@pytest.mark.parametrize(
    ("code", "base", "key", "value"),
    [
        pytest.param(code, base, key, value, id=f"{base['model_type']}, {key}")
        for code, rows in REFUSED
        for base, settings in rows
        for key, value in settings.items()
    ],
)
def test_unknown_features_are_refused(code: str, base: dict[str, Any], key: str, value: Any, tmp_path: Path) -> None:
    others = {"rope_scaling": None} if key == "rope_parameters" else {}
    with raises(ModelError, code) as caught:
        read(tmp_path, change(base, **others, **{key: value}))
    assert key in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


@pytest.mark.parametrize("name", ["qwen2_moe", "granite", "gemma3n_text", None])
def test_an_unsupported_family_is_refused_with_those_supported(name: str | None, tmp_path: Path) -> None:
    with raises(ModelError, "unsupported_model") as caught:
        read(tmp_path, change(QWEN3, model_type=name))
    assert "gemma2" in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{"])
def test_a_damaged_file_is_refused_by_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with raises(ModelError, "invalid_model_config") as caught:
        read_architecture(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)
