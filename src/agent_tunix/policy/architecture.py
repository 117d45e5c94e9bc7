"""What a `config.json` describes, in one vocabulary for all families; loads no JAX.

A family is a function from the values of a `config.json` to an `Architecture`. Keys that the file leaves out have the
defaults that the format gives them (those of the family's configuration class in transformers), since files on the hub
rely on them. A feature that the decoder does not have is refused by the name it has in the file, never ignored.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agent_tunix.errors import ModelError

LayerKind = Literal["full_attention", "sliding_attention"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (https://arxiv.org/abs/2104.09864) and how its frequencies are stretched.

    Attributes:
        theta: Base of the wavelengths.
        kind: `default`; `linear` divides all frequencies by `factor`; `llama3` divides those of long wavelengths only.
        factor: At least 1.
        low_freq_factor: llama3: wavelengths above `original_length / low_freq_factor` are stretched whole.
        high_freq_factor: llama3: wavelengths below `original_length / high_freq_factor` are left alone.
        original_length: llama3: context length before the stretch, in tokens.
    """

    theta: float
    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer.

    Attributes:
        model_type: The family, as `config.json` calls it.
        vocab_size: Rows of the embedding.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the MLP.
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; divides `num_heads`.
        head_dim: Width of a head; even.
        norm_eps: Added to the mean square in every norm.
        tied_embeddings: Whether the output projection is the embedding.
        activation: Of the MLP's gate.
        query_scale: What queries are multiplied by before the dot product.
        layer_kinds: For each layer, whether it sees all positions before, or a window of them.
        rope: By kind of layer.
        window: Positions that a sliding layer sees, its own included.
        qkv_bias: Whether query, key and value projections have a bias.
        qk_norm: Whether queries and keys are normed head by head.
        sandwich_norms: Whether the outputs of attention and MLP are normed too (Gemma 2 and 3).
        norm_offset: Added to every norm's weight: 1 for Gemma.
        embedding_scale: What embeddings are multiplied by.
        attention_softcap: Bound of attention logits through tanh; None: none.
        final_softcap: Bound of output logits through tanh; None: none.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    tied_embeddings: bool
    activation: Literal["silu", "gelu_tanh"]
    query_scale: float
    layer_kinds: tuple[LayerKind, ...]
    rope: Mapping[LayerKind, Rope]
    window: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_softcap: float | None = None
    final_softcap: float | None = None


def read_architecture(directory: Path) -> Architecture:
    """What the `config.json` of a directory describes.

    Raises:
        ModelError: The file is not JSON, a required key is missing or makes no sense, or the family or a feature is
            not supported.
    """
    path = directory / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} must hold an object, not {type(values).__name__}")
    config = _ConfigFile(path, values)
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None:
        raise ModelError(f"{path} has model_type {values.get('model_type')!r}; supported: {', '.join(FAMILIES)}")
    architecture = family(config)
    _check_numbers(path, architecture)
    return architecture


class _ConfigFile:
    """The values of a `config.json`, with errors that name the file and the key."""

    def __init__(self, path: Path, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.values = {**(defaults or {}), **values}

    def __getitem__(self, name: str) -> Any:
        if self.values.get(name) is None:
            raise ModelError(f"{self.path} lacks {name!r}; is it the file that was saved with the weights?")
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def require(self, **only: Any) -> None:
        """Refuse a feature whose value is there and is not the one that is supported."""
        for name, supported in only.items():
            if self.get(name, supported) != supported:
                raise ModelError(f"{self.path}: {name} = {self.values[name]!r} is not supported, only {supported!r}")

    def rope(self, kind: LayerKind, default_theta: float, old_theta: str = "rope_theta") -> Rope:
        """The rotary embedding of a kind of layer, from `rope_parameters` or from the older keys."""
        parameters = self.get("rope_parameters") or {}
        name = "rope_parameters"
        if isinstance(parameters.get(kind), dict):
            parameters, name = parameters[kind], f"rope_parameters.{kind}"
        elif any(isinstance(value, dict) for value in parameters.values()):
            parameters = {}
        if not parameters and old_theta == "rope_theta":
            parameters, name = self.get("rope_scaling") or {}, "rope_scaling"
        theta = float(parameters.get("rope_theta") or self.get(old_theta, default_theta))
        rope_type = parameters.get("rope_type", parameters.get("type", "default"))
        if parameters.get("partial_rotary_factor", 1.0) != 1.0:
            raise ModelError(f"{self.path}: {name}.partial_rotary_factor is not supported, only 1.0")
        if rope_type == "default":
            return Rope(theta)
        needed = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}.get(rope_type)
        if needed is None:
            raise ModelError(
                f"{self.path}: {name} of type {rope_type!r} is not supported, only default, linear and llama3"
            )
        for key in needed:
            if not isinstance(parameters.get(key), int | float):
                raise ModelError(f"{self.path}: {name} of type {rope_type!r} needs {key!r}")
        if rope_type == "linear":
            return Rope(theta, "linear", float(parameters["factor"]))
        factor, low, high = (float(parameters[key]) for key in needed)
        length = parameters.get("original_max_position_embeddings") or self["max_position_embeddings"]
        return Rope(theta, "llama3", factor, low, high, int(length))

    def layer_kinds(self, pattern: int | None) -> tuple[LayerKind, ...]:
        """The kind of each layer: `layer_types`, or else every `pattern`-th sees all positions and the others do not.

        Args:
            pattern: None where the family has no sliding layers.
        """
        count = int(self["num_hidden_layers"])
        default = [
            "full_attention" if pattern is None or (n + 1) % pattern == 0 else "sliding_attention" for n in range(count)
        ]
        kinds = self.get("layer_types", default)
        allowed = ("full_attention",) if pattern is None else ("full_attention", "sliding_attention")
        if len(kinds) != count or not set(kinds) <= set(allowed):
            raise ModelError(
                f"{self.path}: layer_types must name {count} layers of {', '.join(allowed)}; it is {kinds!r}"
            )
        return tuple(kinds)


def _check_numbers(path: Path, a: Architecture) -> None:
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")
    for name in sizes:
        value = getattr(a, name)
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{path}: {name} must be a whole number above 0, not {value!r}")
    if a.num_heads % a.num_kv_heads:
        raise ModelError(
            f"{path}: num_attention_heads {a.num_heads} must be divisible by num_key_value_heads {a.num_kv_heads}"
        )
    if a.head_dim % 2:
        raise ModelError(f"{path}: head_dim {a.head_dim} must be even, because rotary embeddings turn pairs")
    if "sliding_attention" in a.layer_kinds and (not isinstance(a.window, int) or a.window < 1):
        raise ModelError(f"{path}: sliding_window must be a whole number above 0, not {a.window!r}")


_NOT_QUANTISED = {"quantization_config": None}


def _common(config: _ConfigFile) -> dict[str, Any]:
    """What every family names alike."""
    config.require(**_NOT_QUANTISED)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    return {
        "model_type": config["model_type"],
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads", heads),
        "head_dim": head_dim,
        "norm_eps": float(config["rms_norm_eps"]),
        "query_scale": head_dim**-0.5,
    }


def _read_plain(config: _ConfigFile, default_theta: float, **features: Any) -> Architecture:
    """Llama's shape, with what a family adds to it."""
    config.require(hidden_act="silu")
    return Architecture(
        **_common(config),
        tied_embeddings=config.get("tie_word_embeddings", False),
        activation="silu",
        layer_kinds=config.layer_kinds(pattern=None),
        rope={"full_attention": config.rope("full_attention", default_theta)},
        **features,
    )


def _read_llama(config: _ConfigFile) -> Architecture:
    """Llama 3, 3.1 and 3.2 (https://arxiv.org/abs/2407.21783)."""
    config.require(attention_bias=False, mlp_bias=False)
    return _read_plain(config, 10_000.0)


def _read_qwen2(config: _ConfigFile) -> Architecture:
    """Qwen 2 and 2.5 (https://arxiv.org/abs/2412.15115)."""
    config.require(use_sliding_window=False)
    return _read_plain(config, 10_000.0, qkv_bias=True)


def _read_qwen3(config: _ConfigFile) -> Architecture:
    """Qwen 3, dense (https://arxiv.org/abs/2505.09388)."""
    config.require(use_sliding_window=False, attention_bias=False)
    return _read_plain(config, 10_000.0, qk_norm=True)


def _read_gemma(config: _ConfigFile, rope: Mapping[LayerKind, Rope], pattern: int, **features: Any) -> Architecture:
    config.require(
        hidden_activation="gelu_pytorch_tanh",
        attention_bias=False,
        use_bidirectional_attention=False,
        tie_word_embeddings=True,
    )
    common = _common(config)
    return Architecture(
        **{**common, "query_scale": float(config["query_pre_attn_scalar"]) ** -0.5},
        tied_embeddings=True,
        activation="gelu_tanh",
        layer_kinds=config.layer_kinds(pattern),
        rope=rope,
        window=config["sliding_window"],
        sandwich_norms=True,
        norm_offset=1.0,
        embedding_scale=common["hidden_size"] ** 0.5,
        attention_softcap=config.get("attn_logit_softcapping"),
        final_softcap=config.get("final_logit_softcapping"),
        **features,
    )


_GEMMA2_DEFAULTS = {
    "vocab_size": 256_000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}


def _read_gemma2(config: _ConfigFile) -> Architecture:
    """Gemma 2 (https://arxiv.org/abs/2408.00118)."""
    explicit = config.values
    config = _ConfigFile(config.path, explicit, _GEMMA2_DEFAULTS)
    # Null switches a cap off, where a key that is left out means the default.
    for name in ("final_logit_softcapping", "attn_logit_softcapping"):
        config.values[name] = explicit.get(name, _GEMMA2_DEFAULTS[name])
    rope = config.rope("full_attention", 10_000.0)
    return _read_gemma(config, {"full_attention": rope, "sliding_attention": rope}, pattern=2)


_GEMMA3_DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}


def _read_gemma3_text(config: _ConfigFile) -> Architecture:
    """Gemma 3, text only (https://arxiv.org/abs/2503.19786)."""
    config = _ConfigFile(config.path, config.values, _GEMMA3_DEFAULTS)
    rope: dict[LayerKind, Rope] = {
        "full_attention": config.rope("full_attention", 1_000_000.0),
        "sliding_attention": config.rope("sliding_attention", 10_000.0, "rope_local_base_freq"),
    }
    return _read_gemma(config, rope, pattern=config.get("sliding_window_pattern", 6), qk_norm=True)


def _read_gemma3(config: _ConfigFile) -> Architecture:
    """Gemma 3 with a vision tower, of which the text model alone is taken."""
    config.require(**_NOT_QUANTISED)
    text = _ConfigFile(config.path, {"model_type": "gemma3_text", **config["text_config"]})
    return replace(_read_gemma3_text(text), model_type=config["model_type"])


FAMILIES: dict[str, Callable[[_ConfigFile], Architecture]] = {
    "gemma2": _read_gemma2,
    "gemma3": _read_gemma3,
    "gemma3_text": _read_gemma3_text,
    "llama": _read_llama,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
}
