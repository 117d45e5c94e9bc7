"""Correctness opens the bonus; the helpers are benchmax's."""

from benchmax.envs.reward_helpers import clip01, extract_answer_block, extract_completion_text


class reward:
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages) or ""
        right = float((extract_answer_block(text) or "").strip() == task["ground_truth"])
        return {"right": right, "brief": right * clip01(1 - len(text) / 100)}
