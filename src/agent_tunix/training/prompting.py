"""Examples → prompts that fit, as the token ids that the model sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.data import Dropped, Example, PromptEncoder, filter_over_long, messages_for
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.training.learner import PromptBatch


@dataclass(frozen=True)
class Prompts:
    """Examples whose prompts fit, encoded.

    Attributes:
        examples: In the order of their source.
        token_ids: One list for each.
        dropped: Those that did not fit.
    """

    examples: Sequence[Example]
    token_ids: Sequence[Sequence[int]]
    dropped: Dropped

    def batch(self, rows: Sequence[int] | np.ndarray, config: Config) -> PromptBatch:
        """The prompts of some rows."""
        chosen = [self.examples[row] for row in rows]
        return PromptBatch(
            prompts=[example.prompt for example in chosen],
            messages=[messages_for(config.prompt, example.prompt) for example in chosen],
            token_ids=[self.token_ids[row] for row in rows],
            columns=[example.columns for example in chosen],
        )


def encode_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, config: Config, *, may_be_empty: bool = False
) -> Prompts:
    """Encode every example, and leave out the prompts that are too long or refuse them, as configured.

    Args:
        examples: Of one set, or of several.
        tokenizer: The policy's.
        config: The run.
        may_be_empty: Whether none may be left, as of a few rows of a stream.

    Raises:
        DataError: A prompt is too long and `generation.over_long` is refuse, or none fits.
    """
    encoder = PromptEncoder(tokenizer, config.prompt)
    longest = config.generation.max_prompt_length
    token_ids = [encoder.encode(example.prompt) for example in examples]
    kept, dropped = filter_over_long(
        examples, map(len, token_ids), longest, config.generation.over_long, may_be_empty=may_be_empty
    )
    return Prompts(kept, [ids for ids in token_ids if len(ids) <= longest], dropped)
