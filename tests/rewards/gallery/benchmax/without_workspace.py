"""The older function of a completion and its reference alone."""


def match(completion, ground_truth, **kwargs):
    return 1.0 if ground_truth in completion[0]["content"] else 0.25


reward_functions = {"match": match}
