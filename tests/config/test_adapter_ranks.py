import pytest

from agent_tunix.config.adapter_ranks import adapter_rank_problems, vllm_max_rank
from agent_tunix.config.compose import compose_overrides


@pytest.mark.parametrize(("rank", "choice"), [(1, 1), (2, 8), (8, 8), (12, 16), (257, 320), (512, 512), (513, None)])
def test_the_least_rank_with_which_vllm_loads_an_adapter(rank: int, choice: int | None) -> None:
    assert vllm_max_rank(rank) == choice


@pytest.mark.parametrize(
    ("engine", "rank", "is_refused"),
    [("vllm", 512, False), ("vllm", 513, True), ("vllm", 0, False), ("sglang", 1024, False), ("none", 1024, False)],
)
def test_ranks_above_the_largest_of_vllm_are_refused(engine: str, rank: int, is_refused: bool) -> None:
    config = compose_overrides([f"engine={engine}", f"model.lora_rank={rank}"])
    assert bool(list(adapter_rank_problems(config))) is is_refused
