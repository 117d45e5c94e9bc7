"""A Hugging Face directory on disk → the policy on a mesh, and its reference.

`ModelConfig` of Tunix is built from `config.json` itself, so any directory of a supported family loads without a
table of names; what a `config.json` asks for and the architecture here cannot do is refused by name.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy import compat


@dataclass(frozen=True)
class Architecture:
    """The numbers of a `config.json` that decide shapes and memory."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int


def read_architecture(directory: Path) -> tuple[dict[str, Any], Architecture]:
    """The `config.json` of a directory, and what matters of it.

    Raises:
        ModelError: The file is not JSON, or a required number is missing.
    """
    path = directory / "config.json"
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    _require(path, values, "num_attention_heads", "num_hidden_layers", "hidden_size", "vocab_size")
    heads = values["num_attention_heads"]
    return values, Architecture(
        num_layers=values["num_hidden_layers"],
        num_kv_heads=values.get("num_key_value_heads", heads),
        head_dim=values.get("head_dim", values["hidden_size"] // heads),
        vocab_size=values["vocab_size"],
    )


def _require(path: Path, values: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in values:
            raise ModelError(f"{path} lacks {name!r}")


def make_mesh(shape: list[int]) -> jax.sharding.Mesh:
    """A mesh of the first devices over the axes (fsdp, tp).

    Raises:
        ConfigError: The shape needs more devices than there are.
    """
    devices = jax.devices()
    needed = int(np.prod(shape))
    if needed > len(devices):
        raise ConfigError(f"model.mesh_shape {shape} needs {needed} devices; there are {len(devices)}")
    return jax.sharding.Mesh(np.array(devices[:needed]).reshape(shape), ("fsdp", "tp"))


def load_policy(directory: Path, config: ModelConfig, mesh: jax.sharding.Mesh) -> nnx.Module:
    """The model of a directory, sharded over the mesh, with an adapter where one is asked for.

    Raises:
        ModelError: The architecture or a feature of it is not supported, or a file is damaged.
    """
    values, _ = read_architecture(directory)
    build = _FAMILIES.get(values.get("model_type", ""))
    if build is None:
        raise ModelError(
            f"{directory / 'config.json'} has model_type {values.get('model_type')!r}; supported: {sorted(_FAMILIES)}"
        )
    if values["model_type"] != config.model_family:
        raise ModelError(f"model.model_family is {config.model_family}, but {directory} holds {values['model_type']}")
    dtype = _compute_dtype(config.dtype)
    # Small updates are lost on weights in bfloat16: what trains is stored in float32, whatever computes.
    model = build(directory, values, mesh, dtype, dtype if config.lora_rank > 0 else jnp.dtype("float32"))
    if config.lora_rank > 0:
        model = _add_adapter(model, config, mesh)
    if config.remat:
        compat.rematerialise(model)
    return model


def copy_reference(policy: nnx.Module) -> nnx.Module:
    """The reference policy: what the policy is now.

    Frozen weights are shared with the policy and weights that train are copied, so with an adapter there is no second
    copy of the base.
    """
    graphdef, state = nnx.split(policy)
    wrt = nnx.LoRAParam if has_adapter(policy) else nnx.Param
    trained, frozen = nnx.split_state(state, wrt, ...)
    return nnx.merge(graphdef, jax.tree.map(jnp.copy, trained), frozen)


def has_adapter(model: nnx.Module) -> bool:
    """Whether the model carries LoRA weights."""
    return bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))


def count_parameters(model: nnx.Module) -> tuple[int, int]:
    """How many weights there are, and how many of them train."""
    total = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    adapter = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))
    return total, adapter or total


def _compute_dtype(name: str) -> jnp.dtype:
    if name == "auto":
        name = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return jnp.dtype(name)


def _check_tensors(directory: Path, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse files that are damaged or lack a tensor; Tunix leaves what it does not find as it was initialised."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as tensors:
                found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is damaged or half downloaded ({error}); fetch it again") from error
    for name, shape in expected.items():
        if name not in found:
            raise ModelError(f"{directory} has no tensor {name} in its *.safetensors; are all files downloaded?")
        if found[name] != shape:
            raise ModelError(f"{directory}: {name} has the shape {found[name]}, but config.json asks for {shape}")


def _build_qwen3(
    directory: Path, values: dict[str, Any], mesh: jax.sharding.Mesh, dtype: jnp.dtype, param_dtype: jnp.dtype
) -> nnx.Module:
    from tunix.models.qwen3 import model as qwen3
    from tunix.models.qwen3 import params

    _refuse_unsupported(
        directory,
        values,
        {
            "rope_scaling": None,
            "use_sliding_window": False,
            "attention_bias": False,
            "hidden_act": "silu",
            "quantization_config": None,
        },
    )
    _require(directory / "config.json", values, "intermediate_size", "rms_norm_eps")
    rope = values.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise ModelError(f"{directory / 'config.json'}: rope_parameters = {rope!r} is not supported, only 'default'")
    _, architecture = read_architecture(directory)
    _check_tensors(directory, _qwen3_tensors(values, architecture))
    theta = values.get("rope_theta") or rope.get("rope_theta", 1_000_000)
    config = qwen3.ModelConfig(
        num_layers=architecture.num_layers,
        vocab_size=architecture.vocab_size,
        embed_dim=values["hidden_size"],
        hidden_dim=values["intermediate_size"],
        num_heads=values["num_attention_heads"],
        head_dim=architecture.head_dim,
        num_kv_heads=architecture.num_kv_heads,
        rope_theta=int(theta),
        norm_eps=values["rms_norm_eps"],
        use_tied_embedding=values.get("tie_word_embeddings", False),
        dtype=dtype,
        param_dtype=param_dtype,
    )
    # "original" reads each tensor in its own type; mixed-type files fail otherwise.
    with compat.entered(mesh):
        model = params.create_model_from_safe_tensors(str(directory), config, mesh, dtype=param_dtype, mode="original")
    compat.set_rope_theta(model, float(theta))
    built: nnx.Module = model
    return built


def _qwen3_tensors(values: Mapping[str, Any], architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor of a Qwen3 directory."""
    hidden, inner, size = values["hidden_size"], values["intermediate_size"], architecture.head_dim
    queries, keys = values["num_attention_heads"] * size, architecture.num_kv_heads * size
    of_layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (size,),
        "self_attn.k_norm": (size,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    tensors: dict[str, tuple[int, ...]] = {
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(architecture.num_layers)
        for name, shape in of_layer.items()
    }
    tensors |= {"model.embed_tokens.weight": (architecture.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not values.get("tie_word_embeddings", False):
        tensors["lm_head.weight"] = (architecture.vocab_size, hidden)
    return tensors


_FAMILIES: dict[str, Callable[[Path, dict[str, Any], jax.sharding.Mesh, jnp.dtype, jnp.dtype], nnx.Module]] = {
    "qwen3": _build_qwen3,
}


def _refuse_unsupported(directory: Path, values: dict[str, Any], supported: dict[str, Any]) -> None:
    for name, only in supported.items():
        if values.get(name, only) != only:
            raise ModelError(f"{directory / 'config.json'}: {name} = {values[name]!r} is not supported, only {only!r}")


_PROJECTIONS = {"qwen3": ".*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"}


def _add_adapter(model: Any, config: ModelConfig, mesh: jax.sharding.Mesh) -> nnx.Module:
    import qwix
    from tunix.rl import reshard

    pattern = config.lora_module_path or _PROJECTIONS[config.model_family]
    provider = compat.lora_provider(pattern, config.lora_rank, config.lora_alpha)
    with compat.entered(mesh):
        adapted: nnx.Module = qwix.apply_lora_to_model(model, provider, rngs=nnx.Rngs(0), **model.get_model_input())
        adapted = reshard.reshard_model_to_mesh(adapted, mesh)
    state = nnx.state(adapted, nnx.LoRAParam)
    if not jax.tree.leaves(state):
        raise ConfigError(f"model.lora_module_path {pattern!r} matches no layer of the model")
    # Adapters learn in float32, whatever the base is stored in.
    nnx.update(adapted, jax.tree.map(lambda x: x.astype(jnp.float32), state))
    return adapted
