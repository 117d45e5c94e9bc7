"""A taskset of `verifiers.v1` with a tool: reverse a word."""

import verifiers.v1 as vf

__all__ = ["ReverseTaskset"]


class ReverseData(vf.TaskData):
    """A word and its reversal."""

    answer: str


class ReverseTask(vf.Task[ReverseData]):
    """Reverse a word."""

    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        """End after three turns."""
        return trace.num_turns >= 3

    @vf.reward(weight=2.0)
    async def exact(self, trace: vf.Trace) -> float:
        """Score 1 for the reversal."""
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def num_letters(self, trace: vf.Trace) -> float:
        """Count the letters of the reply."""
        return float(len(trace.last_reply))


class ReverseTools(vf.Toolset[vf.SharedToolsetConfig]):
    """A tool that reverses."""

    TOOL_PREFIX = "text"

    @vf.tool
    async def reverse(self, text: str) -> str:
        """Reverse a text."""
        return text[::-1]


class ReverseConfig(vf.TasksetConfig):
    """Settings."""

    with_tools: bool = False
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class ReverseTaskset(vf.Taskset[ReverseTask, ReverseConfig]):
    """Words to reverse."""

    @classmethod
    def toolsets(cls, config: ReverseConfig) -> list[vf.Toolset]:
        """Return the tools."""
        return [ReverseTools(config.tools)] if config.with_tools else []

    def load(self) -> list[ReverseTask]:
        """Return the tasks."""
        words = ("level", "drawer", "stressed", "time", "live", "star")
        return [
            ReverseTask(
                ReverseData(prompt=word, system_prompt="Reverse the word.", answer=word[::-1]), self.config.task
            )
            for word in words
        ]


if __name__ == "__main__":
    ReverseTools.run()
