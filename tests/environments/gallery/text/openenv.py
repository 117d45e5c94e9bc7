"""An OpenEnv client: async, a typed action, observations that are objects."""

from dataclasses import dataclass


@dataclass
class EchoAction:
    message: str
    loud: bool = False


@dataclass
class EchoObservation:
    echoed: str


@dataclass
class StepResult:
    observation: EchoObservation
    reward: float | None = None
    done: bool = False


class EchoClient:
    def __init__(self, base_url="http://localhost:8000"):
        self.base_url = base_url

    async def reset(self, **kwargs):
        return StepResult(EchoObservation("ready"))

    async def step(self, action: EchoAction):
        text = action.message.upper() if action.loud else action.message
        return StepResult(EchoObservation(text), len(text) / 10, text == "STOP")

    async def close(self):
        pass
