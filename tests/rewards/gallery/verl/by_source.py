"""One file for several data sets; each has its own scorer."""


def _number(text):
    digits = [word for word in text.replace("<", " ").replace(">", " ").split() if word.isdigit()]
    return digits[-1] if digits else None


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if data_source == "openai/gsm8k":
        return float(_number(solution_str) == ground_truth)
    raise NotImplementedError(f"no scorer for {data_source}")
