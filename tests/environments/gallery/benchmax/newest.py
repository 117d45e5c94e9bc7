"""The newest form: rollouts as objects, tools in OpenAI's form, a context for each rollout, imports of the platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmax.bundle import dump_bundle
from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    DatasetSplit,
    Example,
    JsonlDataset,
    JsonRow,
    RewardMap,
    Tool,
    canonical_example_id,
)
from benchmax.rewards import clip01, extract_completion_text
from castform.platform.client import TrainerClient


class Sums(JsonlDataset[JsonRow]):
    def __init__(self, path: Path) -> None:
        super().__init__(path, row_to_example=lambda row: Example(id=canonical_example_id(row), payload=row))


class Abacus(BaseEnv):
    reward_keys = ("correct", "counted")
    left = closed = 0

    def __init__(self, *, most: int = 2) -> None:
        super().__init__(max_turns=most + 1, max_tool_calls=most)
        self.beads: dict[str, int] = {}

    async def create_dataset(self, split: DatasetSplit, base_dir: Path) -> Sums:
        return Sums(base_dir / f"{split}.jsonl")

    @asynccontextmanager
    async def rollout_context(self, rollout_id: str, example: Example[JsonRow]):
        assert example.payload["prompt_messages"][-1]["role"] == "user"
        self.beads[rollout_id] = example.payload["start"]
        yield
        del self.beads[rollout_id]
        Abacus.left += 1

    async def list_tools(self) -> list[Tool]:
        parameters = {"type": "object", "properties": {"beads": {"type": "integer"}}, "required": ["beads"]}
        return [
            {"type": "function", "function": {"name": "push", "description": "Push beads.", "parameters": parameters}}
        ]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> dict[str, int]:
        self.beads[rollout_id] += tool_args["beads"]
        return {"beads": self.beads[rollout_id]}

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
        assert {*rollout.example_args} <= {"start", "answer", "prompt", "ground_truth"}
        assert rollout.termination_reason == ("finished" if len(rollout.messages) % 2 == 0 else "max_turns_exceeded")
        right = rollout.example_args["answer"] in extract_completion_text(rollout.messages)
        return {"correct": clip01(right and rollout.termination_reason == "finished")}

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap]:
        return {one.rollout_id: {"counted": one.rewards["correct"] * self.beads[one.rollout_id]} for one in rollouts}

    async def aclose(self) -> None:
        Abacus.closed += 1


if __name__ == "__main__":
    dump_bundle(Abacus)
    TrainerClient()
