"""A rubric function that reads the answer by its parser."""

import verifiers as vf

parser = vf.XMLParser(["reasoning", "answer"], answer_field="answer")


def reward(parser, completion, answer, **kwargs):
    return 1.0 if (parser.parse_answer(completion) or "") == answer else 0.0


def load_environment():
    rubric = vf.Rubric(funcs=[reward, parser.get_format_reward_func()], weights=[1.0, 0.2], parser=parser)
    return vf.SingleTurnEnv(dataset=vf.load_example_dataset("gsm8k"), rubric=rubric, parser=parser)
