import enum


class SingleTurnParams(enum.Enum):
    INPUT = "input"
    ACTUAL_OUTPUT = "actual_output"
    EXPECTED_OUTPUT = "expected_output"
    RETRIEVAL_CONTEXT = "retrieval_context"


class LLMTestCase:
    def __init__(self, **columns: object) -> None:
        vars(self).update(columns)
