"""The teacher of on-policy distillation: a frozen model with the policy's tokenizer (`losses/distillation.py`)."""

from concurrent.futures import Executor
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int

from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.variables import Parts
from agent_tunix.startup.compiled_function import CompiledFunction


class TeacherLogps(NamedTuple):
    """Log-probabilities under the teacher, at the sampling temperature.

    Attributes:
        logps: Log-probabilities of the sampled tokens, or of `words`.
        words: Ids of the k likeliest words at each place; None if only the sampled tokens are judged.
    """

    logps: Float[Array, "n T"] | Float[Array, "n T k"]
    words: Int[Array, "n T k"] | None = None


class Teacher:
    """A model that judges completions.

    Args:
        model: The model. It is not copied.
        temperature: Sampling temperature.
        top_k: Number of words that it judges at each place; None for the sampled token alone.

    Attributes:
        model: The model.
    """

    def __init__(self, model: nnx.Module, temperature: float, top_k: int | None) -> None:
        self.model = model
        self._statics = {"temperature": temperature, "top_k": top_k}
        self._parts = Parts(model)
        self._judge = CompiledFunction(_judge, static_argnames=("temperature", "top_k"))

    def judge(self, prompts: jax.Array, prompt_lengths: jax.Array, tokens: jax.Array) -> TeacherLogps:
        """Dispatch the pass over completions; nothing waits for it.

        Args:
            prompts: [B, P] ids, padded on the left.
            prompt_lengths: [B] tokens of each prompt.
            tokens: [B × G, T] ids of the completions, those of a prompt side by side.
        """
        logps: TeacherLogps = self._judge(*self._parts.split(), (prompts, prompt_lengths, tokens), **self._statics)
        return logps

    def compile_ahead(self, executor: Executor, *arrays: jax.Array) -> None:
        """Begin to compile the pass over arrays like those of `judge`."""
        self._judge.compile_ahead(executor, *self._parts.split(), arrays, **self._statics)


def _judge(graphdef: Any, state: Any, arrays: Any, temperature: float, top_k: int | None) -> TeacherLogps:
    statistics = completion_statistics(nnx.merge(graphdef, state), *arrays, temperature=temperature, top=top_k)
    if top_k is None:
        return TeacherLogps(statistics.logps)
    assert statistics.top_logps is not None
    return TeacherLogps(statistics.top_logps, statistics.top)
