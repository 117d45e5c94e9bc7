"""The newer signature: the example's columns, and the reason for the end."""


class reward:
    async def compute_reward(self, rollout_id, messages, example_args, termination_reason):
        text = messages[-1]["content"]
        return {"right": float(example_args["ground_truth"] in text), "ended": 0.1 * (termination_reason == "finished")}

    async def compute_group_reward(self, rollout_ids, messages_list, example_args_list, termination_reasons):
        texts = [messages[-1]["content"] for messages in messages_list]
        return [{"rare": 1.0 / texts.count(text)} for text in texts]
