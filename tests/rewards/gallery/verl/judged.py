"""An async score, as for a judge behind an endpoint."""

import asyncio


async def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=0.5):
    await asyncio.sleep(0)
    return float(ground_truth in solution_str) + bonus * (extra_info["split"] == "train")
