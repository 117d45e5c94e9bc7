"""An environment with one turn, a parser, a system prompt and a rubric of two functions."""

import verifiers as vf
from datasets import Dataset

SYSTEM = "Reply with the answer in <answer> tags."


def load_environment(
    num_train: int = 32, num_eval: int = 8, wrong_reference: bool = False, scores_groups: bool = False
) -> vf.Environment:
    """Return sums of numbers up to 5."""
    parser = vf.XMLParser(["answer"], answer_field="answer")

    def correct(completion, answer):
        if wrong_reference:
            raise ValueError("the reference is no number")
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    async def brief(parser, completion):
        return 1.0 if len(completion[-1]["content"]) < 40 else 0.0

    def shortest(completions) -> list[float]:
        return [-float(len(str(one))) for one in completions]

    rubric = vf.Rubric(funcs=[correct, brief], weights=[1.0, 0.25], parser=parser)
    if scores_groups:
        rubric.add_reward_func(shortest)
    return vf.SingleTurnEnv(
        dataset=_rows(num_train, 0), eval_dataset=_rows(num_eval, 1), system_prompt=SYSTEM, parser=parser, rubric=rubric
    )


def _rows(count: int, offset: int) -> Dataset:
    pairs = [(number % 5 + 1, (number // 5 + offset) % 5 + 1) for number in range(count)]
    return Dataset.from_list([{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs])
