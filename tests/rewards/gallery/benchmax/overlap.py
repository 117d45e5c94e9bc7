"""Shared words, by a metric that the row names."""


def word_overlap(completion, ground_truth, mcp_client, workspace, **kwargs):
    if kwargs["ability"] != "math":
        raise ValueError("kwargs must contain the ability")
    words = set(completion[-1]["content"].replace("<", " ").replace(">", " ").lower().split())
    wanted = set(str(ground_truth).lower().split())
    return len(words & wanted) / len(words | wanted) if words | wanted else 0.0


reward_functions = {"match": word_overlap}
