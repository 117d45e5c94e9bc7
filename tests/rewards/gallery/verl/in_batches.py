"""The batched form: lists in, a list out. The shortest of the right ones earns more."""


def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
    right = [truth in text for text, truth in zip(solution_strs, ground_truths)]
    lengths = [len(text) for text, good in zip(solution_strs, right) if good]
    return [
        {"score": (1.0 + 0.5 * (len(text) == min(lengths))) if good else 0.0, "right": good}
        for text, good in zip(solution_strs, right)
    ]
