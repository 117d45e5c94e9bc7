"""The objective of preference tuning: the losses of pairs, and their metrics. Its units are pairs."""

import jax
import jax.numpy as jnp
import numpy as np

from agent_tunix.config.preferences import preference_settings
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.grpo.reference import ReferencePolicy
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.training.preferences.losses import pair_losses, score_responses
from agent_tunix.training.preferences.pairs import make_pairs
from agent_tunix.training.supervised import Objective, ResponseExample, Statistics
from agent_tunix.training.targets import ResponseBatch


class PreferenceObjective(Objective):
    """The losses of pairs.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy, for its tokenizer.
        reference: The policy before training, at temperature 1; None for a loss without one.
    """

    name = "prefer"

    def __init__(self, config: Config, sampler: Sampler, reference: ReferencePolicy | None) -> None:
        self._config, self._sampler, self._reference = config, sampler, reference
        self._settings = preference_settings(config.prefer)

    def read(self, batch: PromptBatch) -> ResponseBatch:
        """Return the tokens of the pairs, the chosen response of each prompt before the rejected one."""
        sampler = self._sampler
        return make_pairs(batch, sampler.tokenizer, self._config, pad_id=sampler.pad_id, eos_id=sampler.eos_ids[0])

    def count(self, mask: np.ndarray) -> int:
        """Return the number of pairs that train."""
        return int(mask[::2].any(axis=1).sum())

    def complete(self, example: ResponseExample) -> ResponseExample:
        """Return a micro-batch with the log-probabilities under the reference policy, if there is one."""
        if self._reference is None:
            return example
        logps = self._reference.logps(example.prompt_ids, example.prompt_lengths, example.tokens)
        return example.replace(reference=logps)  # type: ignore[attr-defined]  # flax adds it

    def loss(self, policy: Decoder, example: ResponseExample) -> tuple[jax.Array, Statistics]:
        """Return the weighted sum of the losses of pairs.

        The sums are those of the losses; of pairs whose chosen response has the higher reward, a tie counting half; of
        rewards β s(y), their margins, and log-probabilities of the responses.
        """
        logps_nT = completion_statistics(
            policy,
            example.prompt_ids,
            example.prompt_lengths,
            example.tokens,
            temperature=1.0,
            mask_nT=example.mask,
        ).logps
        score_n = score_responses(self._settings, logps_nT, example.reference, example.mask)
        difference_n = score_n[::2] - score_n[1::2]
        is_pair_n = example.mask[::2].any(axis=1)
        losses_n = jnp.where(is_pair_n, pair_losses(self._settings, difference_n), 0.0)
        wins_n = jnp.where(is_pair_n, (jnp.sign(difference_n) + 1.0) / 2.0, 0.0)
        reward_n = self._settings.beta * score_n
        logp_n = jnp.where(example.mask, logps_nT, 0.0).sum(axis=-1)
        sums = {
            "loss": losses_n.sum(),
            "accuracy": wins_n.sum(),
            "margin": (reward_n[::2] - reward_n[1::2]).sum(),
            "chosen_reward": reward_n[::2].sum(),
            "rejected_reward": reward_n[1::2].sum(),
            "chosen_logp": logp_n[::2].sum(),
            "rejected_logp": logp_n[1::2].sum(),
        }
        return (losses_n * example.weight).sum(), {"sums": sums}
