"""Programs without gradients are compiled as is best where they run, and compute the same wherever that is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.policy import compiling
from agent_tunix.policy.compiling import jit_forward


def wave(x: jax.Array, times: int) -> jax.Array:
    return jnp.tanh(x * times).sum(axis=0)


def test_few_layers_on_a_platform_have_one_function() -> None:
    compiled = jit_forward(wave, static_argnames=("times",))
    assert compiled(2, "cpu") is compiled(3, "cpu")
    assert compiled(2, "cpu") is not compiled(2, "gpu")
    assert compiled(2) is compiled(2, jax.default_backend())


def test_a_cpu_compiles_in_as_many_parts_as_it_has_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(compiling, "num_processors", lambda: 3)
    monkeypatch.setattr(jax, "jit", lambda _, compiler_options, **options: told.update(cpu=compiler_options))
    jit_forward(wave)(3, "cpu")
    assert told["cpu"]["xla_cpu_parallel_codegen_split_count"] == 3
    assert told["cpu"]["xla_cpu_use_fusion_emitters"] is False


def test_many_layers_are_left_to_the_emitter_that_compiles_equal_kernels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(jax, "jit", lambda _, compiler_options, **options: told.append(compiler_options))
    compiled = jit_forward(wave)
    compiled(28, "cpu"), compiled(28, "gpu"), compiled(1, "gpu")
    assert told == [None, None, None]


def test_what_is_computed_does_not_follow_from_how_it_is_compiled() -> None:
    x = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)
    compiled = jit_forward(wave, static_argnames=("times",))
    np.testing.assert_allclose(compiled(2, "cpu")(x, times=2), compiled(2, "another")(x, times=2), rtol=1e-6)
