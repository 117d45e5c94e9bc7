"""A dict: the score, and what is logged beside it."""


def compute_score(data_source, solution_str, ground_truth, extra_info):
    text = solution_str.partition("<answer>")[2].partition("</answer>")[0].strip()
    correct = text == ground_truth
    return {"score": 1.0 if correct else -1.0, "acc": correct, "pred": text, "index": extra_info["index"]}
