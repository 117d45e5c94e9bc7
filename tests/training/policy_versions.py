"""A sampler that keeps the weights of before, as an engine with adapters does, on this machine."""

import threading
from concurrent.futures import CancelledError
from typing import Any

import jax
import numpy as np
from flax import nnx

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.policy.model import copy_reference
from agent_tunix.policy.variables import Variables
from agent_tunix.sampling.sampler import BatchSampler, Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams


class PolicyVersions:
    """A `VersionedSampler` of a policy that trains.

    Args:
        sampler: Sampler of the policy.
        delay_s: Seconds that each batch takes longer.

    Attributes:
        hangs: True to let further batches wait until they are cancelled.
    """

    def __init__(self, sampler: Sampler, delay_s: float = 0.0) -> None:
        self._sampler = sampler
        self._delay_s = delay_s
        self._copy = copy_reference(sampler.policy)
        self._of_copy = Sampler(self._copy, sampler.tokenizer, sampler.mesh, sampler.eos_ids)
        self._trained = nnx.LoRAParam if jax.tree.leaves(nnx.state(self._copy, nnx.LoRAParam)) else nnx.Param
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self.hangs = False

    def sample_batch(self, *args: Any, **kwargs: Any) -> Completions:
        self._wait()
        return self._sampler.sample_batch(*args, **kwargs)

    def bound(self) -> BatchSampler:
        held = Variables(self._sampler.policy, self._trained).read()
        return _Version(self, [np.array(array) for array in held])

    def cancel(self) -> None:
        self._cancelled.set()

    def sample_with(self, weights: list[np.ndarray], *args: Any, **kwargs: Any) -> Completions:
        self._wait()
        with self._lock:
            variables = Variables(self._copy, self._trained)
            now = variables.read()
            variables.write([jax.device_put(array, old.sharding) for array, old in zip(weights, now, strict=True)])
            return self._of_copy.sample_batch(*args, **kwargs)

    def _wait(self) -> None:
        if self._cancelled.wait(60.0 if self.hangs else self._delay_s):
            raise CancelledError


class _Version:
    def __init__(self, versions: PolicyVersions, weights: list[np.ndarray]) -> None:
        self._versions, self._weights = versions, weights

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        return self._versions.sample_with(
            self._weights, batch, key, sampling, num_generations=num_generations, max_prompt_length=max_prompt_length
        )
