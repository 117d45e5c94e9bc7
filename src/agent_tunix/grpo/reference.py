"""The reference policy of the KL penalty.

It is the policy before training. With K = `grpo.reference_sync_steps` above 0 it follows the policy: after every K
steps, its weights become

    π_ref ← α π + (1 − α) π_ref,     α = `grpo.reference_sync_mix`

weight by weight (https://arxiv.org/abs/2404.09656, the hard update with α = 1 and the soft one below). With an adapter,
the adapter is copied. Mixing adapters is refused, because the product of mixed factors is not the mix of the products.
"""

from concurrent.futures import Executor
from typing import Any

import jax
from flax import nnx

from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.model import copy_reference, has_adapter
from agent_tunix.policy.variables import Parts
from agent_tunix.startup.compiled_function import CompiledFunction


class ReferencePolicy:
    """A frozen copy of the policy. It shares the base of an adapter with the policy.

    Args:
        policy: Policy to copy.
        temperature: Sampling temperature.

    Attributes:
        model: The copy.
    """

    def __init__(self, policy: nnx.Module, temperature: float) -> None:
        self.model = copy_reference(policy)
        self._temperature = temperature
        self._parts = Parts(self.model)
        self._reference_logps = CompiledFunction(_reference_logps, static_argnames=("temperature",))

    def logps(self, prompts: jax.Array, prompt_lengths: jax.Array, tokens: jax.Array) -> jax.Array:
        """Dispatch the pass over completions; nothing waits for it.

        Args:
            prompts: [B, P] ids, padded on the left.
            prompt_lengths: [B] tokens of each prompt.
            tokens: [B × G, T] ids of the completions, those of a prompt side by side.

        Returns:
            [B × G, T] log-probabilities at the sampling temperature.
        """
        arrays = prompts, prompt_lengths, tokens
        logps: jax.Array = self._reference_logps(*self._parts.split(), arrays, temperature=self._temperature)
        return logps

    def compile_ahead(self, executor: Executor, *arrays: jax.Array) -> None:
        """Begin to compile the pass over arrays like those of `logps`."""
        self._reference_logps.compile_ahead(executor, *self._parts.split(), arrays, temperature=self._temperature)

    def sync(self, policy: nnx.Module, mix: float) -> None:
        """Move the reference policy towards the policy.

        Args:
            policy: Policy that trains.
            mix: α, above 0 and at most 1.
        """
        kind = trained_kind(policy)
        nnx.update(self.model, _mix(nnx.state(policy, kind), nnx.state(self.model, kind), mix))


def trained_kind(model: nnx.Module) -> type[nnx.Variable[Any]]:
    """Return the kind of variables that train: the adapter's, if there is one."""
    return nnx.LoRAParam if has_adapter(model) else nnx.Param


def _reference_logps(graphdef: Any, state: Any, arrays: Any, temperature: float) -> jax.Array:
    return completion_statistics(nnx.merge(graphdef, state), *arrays, temperature=temperature).logps


@jax.jit
def _mix(new: Any, old: Any, mix: float) -> Any:
    # The result never shares a buffer with the policy, because the next update may overwrite the buffer.
    return jax.tree.map(lambda n, o: (mix * n + (1.0 - mix) * o).astype(o.dtype), new, old)
