from typing import Any


class DeepEvalBaseLLM:
    def __init__(self, model: str) -> None:
        self.name = model
        self.model = self.load_model()

    def load_model(self) -> Any:
        raise NotImplementedError
