"""The newer signatures: `make_example`, `task`, the whole transcript in `messages`."""

from benchmax.envs.base_env import BaseEnv, ToolDefinition
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import Example, Messages


class Lookup(BaseEnv):
    system_prompt = "Look things up."
    recommended_max_turns = 3

    def __init__(self, book=None, **kwargs):
        super().__init__(**kwargs)
        self.book = book or {"capital of france": "Paris"}

    @classmethod
    def dataset_preprocess(cls, row, **kwargs) -> Example:
        return make_example(
            prompt_messages=[{"role": "user", "content": row["question"]}],
            task={"answer": row["answer"]},
            system_prompt=cls.system_prompt,
        )

    async def list_tools(self):
        return [
            ToolDefinition(
                "look_up", "Look up a topic.", {"type": "object", "properties": {"topic": {"type": "string"}}}
            )
        ]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return self.book.get(tool_args.get("topic", "").lower(), {"error": "unknown topic"})

    async def compute_reward(self, rollout_id, messages: Messages, task, **kwargs):
        called = [call["function"]["name"] for one in messages for call in one.get("tool_calls", ())]
        return {
            "correct": float(task["answer"] in extract_completion_text(messages)),
            "looked": 0.5 * float(called == ["look_up"]),
        }
