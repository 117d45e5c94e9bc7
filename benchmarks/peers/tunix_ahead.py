"""Programs of Tunix's own GRPO example, to be compiled for TPUs that this machine does not have.

Model classes, loss, training step and pass of the reference policy are Tunix's.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import optax
import qwix
from benchmarks.ahead import Program, shard
from flax import nnx
from tunix.models.gemma import model as gemma
from tunix.models.gemma3 import model as gemma3
from tunix.rl import algo_core, common
from tunix.rl.grpo import grpo_learner
from tunix.sft import peft_trainer

MODELS: dict[str, tuple[Any, Any]] = {
    "gemma-3-270m-it": (gemma3.Gemma3, gemma3.ModelConfig.gemma3_270m_it),
    "gemma-3-1b-it": (gemma3.Gemma3, gemma3.ModelConfig.gemma3_1b_it),
    "gemma-2-2b-it": (gemma.Gemma, gemma.ModelConfig.gemma2_2b_it),
}
_ADAPTED = ".*q_einsum|.*kv_einsum|.*gate_proj|.*down_proj|.*up_proj|.*attn_vec_einsum"
_PAD, _EOS = 0, 1


def make_mesh(devices: Any, fsdp: int, tp: int) -> jax.sharding.Mesh:
    """Return a mesh with the axes of Tunix's models."""
    return jax.sharding.Mesh(devices[: fsdp * tp].reshape(fsdp, tp), ("fsdp", "tp"))


@contextlib.contextmanager
def _on(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """Make Tunix constrain activations as on these devices; it does not on a CPU."""
    with mesh, mock.patch.object(jax, "devices", return_value=list(mesh.devices.flat)):
        yield


def tunix_programs(
    model: str,
    mesh: jax.sharding.Mesh,
    *,
    completions: int,
    prompt: int,
    length: int,
    rank: int,
    group: int,
    layers: int | None = None,
) -> dict[str, Program]:
    """Return the reference pass and the update of Tunix's learner on some completions.

    Args:
        model: Name of a model of `MODELS`.
        mesh: Mesh of `make_mesh`.
        completions: n, the completions of a micro-batch.
        prompt: P.
        length: T.
        rank: Rank of the adapter.
        group: G.
        layers: Layers of the model; None for its own number.
    """
    algorithm = grpo_learner.GRPOConfig(num_generations=group, beta=0.08, epsilon=0.2)
    kept: dict[str, Any] = {}

    def rows(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        axis = "fsdp" if shape[0] % mesh.shape["fsdp"] == 0 else None
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axis))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def build() -> Any:
        kind, settings = MODELS[model]
        architecture = settings() if layers is None else dataclasses.replace(settings(), num_layers=layers)
        base: Any = kind(architecture, rngs=nnx.Rngs(0))
        kept["base"] = nnx.graphdef(base)
        provider = qwix.LoraProvider(module_path=_ADAPTED, rank=rank, alpha=float(rank))
        policy = qwix.apply_lora_to_model(base, provider, **base.get_model_input())
        optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(3e-6, b1=0.9, b2=0.99, weight_decay=0.1))
        trainer = peft_trainer.PeftTrainer(
            policy, optimizer, peft_trainer.TrainingConfig(eval_every_n_steps=10**9, max_steps=10**9)
        )
        loss = functools.partial(algo_core.grpo_loss_fn, algo_config=algorithm, pad_id=_PAD, eos_id=_EOS)
        trainer.with_loss_fn(loss, has_aux=True)
        trainer.with_gen_model_input_fn(lambda example: {"train_example": example})
        kept["step"] = trainer.create_train_step_fn()
        kept["policy"], kept["optimizer"] = nnx.graphdef(policy), nnx.graphdef(trainer.optimizer)
        frozen, trained = nnx.state(policy, nnx.Not(nnx.LoRAParam)), nnx.state(policy, nnx.LoRAParam)
        return nnx.state(base), frozen, trained, nnx.state(trainer.optimizer)

    with _on(mesh), nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        base, frozen, trained, moments = (shard(state, mesh) for state in jax.eval_shape(build))
    example = grpo_learner.TrainExample(
        prompt_ids=rows((completions, prompt), jnp.int32),
        prompt_mask=rows((completions, prompt), jnp.bool_),
        completion_ids=rows((completions, length), jnp.int32),
        completion_mask=rows((completions, length), jnp.bool_),
        ref_per_token_logps=rows((completions, length), jnp.float32),
        advantages=rows((completions,), jnp.float32),
        old_per_token_logps=None,
    )

    def update(trained: Any, moments: Any, frozen: Any, example: Any) -> Any:
        policy, optimizer = nnx.merge(kept["policy"], trained, frozen), nnx.merge(kept["optimizer"], moments)
        loss, statistics, norm = kept["step"](policy, optimizer, example)
        return nnx.state(policy, nnx.LoRAParam), nnx.state(optimizer), loss, statistics, norm

    def logps(base: Any, prompts: Any, tokens: Any) -> Any:
        return common.compute_per_token_logps(kept["base"], base, prompts, tokens, _PAD, _EOS, temperature=0.9)

    def lower(function: Any, *arguments: Any, **options: Any) -> Any:
        with _on(mesh):
            return jax.jit(function, **options).lower(*arguments)

    return {
        "reference": Program(lambda: lower(logps, base, example.prompt_ids, example.completion_ids)),
        # The learner donates only the optimizer's state.
        "update": Program(lambda: lower(update, trained, moments, frozen, example, donate_argnums=(1,))),
    }
