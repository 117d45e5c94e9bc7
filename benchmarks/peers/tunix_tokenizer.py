"""The tokenizer of agent_tunix, with the method that Tunix requires besides."""

from agent_tunix.policy.chat.tokenizer import Tokenizer


class TunixTokenizer(Tokenizer):
    """A tokenizer that Tunix accepts. None of the benchmarks' models begins its prompts with a special token."""

    def bos_id(self) -> int | None:
        """Return None: there is no beginning-of-sequence token."""
        return None
