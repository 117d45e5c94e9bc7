"""The model that an engine serves, loaded here, and an adapter to try with it."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

from agent_tunix.config.schema import Config, ModelConfig, PromptConfig
from agent_tunix.engines.gate import MOST_PROBE_TOKENS, ProbeScorer
from agent_tunix.planning.open_mesh import open_mesh
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.files.export import write_adapter
from agent_tunix.policy.model import load_policy

_TEXT = "The quick brown fox jumps over the lazy dog. The"
_RANK = 8
_ALPHA = 16.0
# Nats by which the adapter changes log-probabilities on average, so that rounding cannot hide it.
_LEAST_CHANGE = 0.5
_MOST_DOUBLINGS = 10


class LoadedModel:
    """A model in float32 with a random adapter, as a `KnownModel`.

    Args:
        path: Directory of the model, or another value of `model.path`.
        adapter: Empty directory, in which the adapter is written.

    Raises:
        ModelError, ConfigError: The model cannot be loaded.
    """

    def __init__(self, path: str, adapter: Path) -> None:
        config = ModelConfig(path=path, dtype="float32", lora_rank=_RANK, lora_alpha=_ALPHA)
        self.directory = find_model_directory(config)
        self.adapter = adapter
        self.prompt = tuple(Tokenizer(self.directory, PromptConfig()).encode(_TEXT))
        mesh = open_mesh(Config(model=config), read_architecture(self.directory), num_rows=None)
        self._model = load_policy(self.directory, config, mesh)
        self._scorer = ProbeScorer(self._model, MOST_PROBE_TOKENS)
        self._draw_adapter()
        write_adapter(self._model, self.directory, adapter, _ALPHA, path)

    def score(self, tokens: Sequence[int], *, with_adapter: bool) -> list[float]:
        """Return the log-probability of each token after the first."""
        if with_adapter:
            return list(map(float, self._scorer.score(tokens)))
        adapted = jax.tree.map(jnp.copy, nnx.state(self._model, nnx.LoRAParam))
        nnx.update(self._model, jax.tree.map(jnp.zeros_like, adapted))
        try:
            return list(map(float, self._scorer.score(tokens)))
        finally:
            nnx.update(self._model, adapted)

    def _draw_adapter(self) -> None:
        """Draw the adapter, as large as it takes to change the distribution."""
        state, key = nnx.state(self._model, nnx.LoRAParam), jax.random.key(0)
        leaves, form = jax.tree.flatten(state)
        keys = jax.random.split(key, len(leaves))
        noise = [jax.random.normal(one, leaf.shape, leaf.dtype) for one, leaf in zip(keys, leaves, strict=True)]
        base = self.score(self.prompt, with_adapter=False)
        for doublings in range(_MOST_DOUBLINGS):
            scaled = [0.01 * 2**doublings * one for one in noise]
            nnx.update(self._model, jax.tree.unflatten(form, scaled))
            pairs = list(zip(base, self.score(self.prompt, with_adapter=True), strict=True))
            if sum(abs(one - other) for one, other in pairs) / len(pairs) >= _LEAST_CHANGE:
                return
