"""The reason for the end of the rollout counts."""


async def ended(completion, ground_truth, termination_reason, mcp_client, workspace):
    right = float(ground_truth in completion[-1]["content"])
    return right if termination_reason == "finished" else 0.5 * right


reward_functions = {"match": ended}
