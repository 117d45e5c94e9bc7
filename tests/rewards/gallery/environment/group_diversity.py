import logging

logger = logging.getLogger(__name__)


class reward:
    """A small bonus for saying what the siblings do not."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(str(task["ground_truth"]) in messages[-1]["content"])}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        said = [messages[-1]["content"] for messages in messages_list]
        logger.info("%d different completions of %d", len(set(said)), len(said))
        return [{"novelty": 0.1 / said.count(text)} for text in said]
