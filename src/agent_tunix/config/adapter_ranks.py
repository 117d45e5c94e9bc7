"""Ranks of adapters that engines accept."""

from collections.abc import Iterator

from agent_tunix.config.schema import Config

# The choices of vLLM's `--max-lora-rank`. An adapter may have any rank up to it.
VLLM_MAX_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def adapter_rank_problems(config: Config) -> Iterator[str]:
    """Yield a message if the engine cannot load an adapter of `model.lora_rank`."""
    rank = config.model.lora_rank
    if config.engine.name == "vllm" and rank and vllm_max_rank(rank) is None:
        yield (
            f"model.lora_rank must be at most {VLLM_MAX_RANKS[-1]} with engine=vllm, the largest --max-lora-rank of "
            f"vLLM, but it is {rank}; use a lower rank, or model.lora_rank=0 to train all weights"
        )


def vllm_max_rank(rank: int) -> int | None:
    """Return the least `--max-lora-rank` with which vLLM loads adapters of a rank; None if there is none."""
    return next((choice for choice in VLLM_MAX_RANKS if choice >= rank), None)
