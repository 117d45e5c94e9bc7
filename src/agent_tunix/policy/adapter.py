"""The LoRA adapter: the projections that get one, and its initial weights."""

import functools
import logging
import zlib
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.mesh import sharding_over
from agent_tunix.policy.module_names import abbreviate, adapter_pattern, explain_no_match, matches, name_of
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.projection import Projection

_LOGGER = logging.getLogger("agent_tunix.model")


def add_adapter(model: Decoder, config: ModelConfig, mesh: jax.sharding.Mesh, seed: int) -> None:
    """Add an adapter to every projection that `model.lora_module_path` matches.

    A is uniform within ± sqrt(6 / inputs) (He initialisation, as in Qwix and Tunix), or with `model.lora_init=peft`
    within ± sqrt(1 / inputs). B is 0, so at first the adapter does not change the model. The A of a projection depends
    only on the seed and the projection's name.

    Args:
        model: Decoder whose projections are changed in place; no weight is copied.
        config: Rank, alpha and pattern.
        mesh: Mesh of the model. An adapter is divided like its projection.
        seed: Seed of the run.

    Raises:
        ConfigError: The pattern matches no projection. The message lists the projections.
    """
    names = {name_of(path): module for path, module in nnx.iter_modules(model) if path}
    projections = {name: module for name, module in names.items() if isinstance(module, Projection)}
    pattern = adapter_pattern(config, model.config)
    chosen = [name for name in projections if matches(pattern, name)]
    others = [name for name, module in names.items() if matches(pattern, name) and _holds_weights(module)]
    others = [name for name in others if name not in projections]
    if not chosen:
        raise ConfigError(explain_no_match(pattern, list(projections), others), code="no_adapted_projection")
    if others:
        _LOGGER.warning(
            "model.lora_module_path %r also matches %s, which %s no adapter: only projections can have one",
            pattern,
            abbreviate(others),
            "gets" if len(others) == 1 else "get",
        )
    key = jax.random.key(seed)
    for name in chosen:
        module = projections[name]
        lora_a, lora_b = _first_weights(module, config, jax.random.fold_in(key, zlib.crc32(name.encode())), mesh)
        module.add_adapter(lora_a, lora_b, config.lora_alpha / config.lora_rank)
    _LOGGER.info("adapters of rank %d: %d, on %s", config.lora_rank, len(chosen), abbreviate(chosen))


def _first_weights(
    module: Projection, config: ModelConfig, key: jax.Array, mesh: jax.sharding.Mesh
) -> tuple[jax.Array, jax.Array]:
    draw, zeros = _initializers(mesh, module.axes, config.lora_init)
    rank = config.lora_rank
    return draw(key, (module.in_features, rank), jnp.float32), zeros((rank, module.out_features), jnp.float32)


@functools.cache
def _initializers(mesh: jax.sharding.Mesh, axes: tuple[str, str], kind: str) -> tuple[Any, Any]:
    """Return compiled functions that create the LoRA matrices A and B with their sharding.

    Cached, so that projections of one shape share a compiled program.
    """
    place_a, place_b = sharding_over(mesh, axes[0], None), sharding_over(mesh, None, axes[1])
    uniform = jax.nn.initializers.he_uniform()
    if kind == "peft":
        uniform = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    draw = jax.jit(uniform, static_argnums=(1, 2), out_shardings=place_a)
    return draw, jax.jit(jnp.zeros, static_argnums=(0, 1), out_shardings=place_b)


def _holds_weights(module: Any) -> bool:
    return any(isinstance(value, nnx.Param) for value in vars(module).values())
