"""No base class, synchronous methods, tools as dicts, and `termination_reason`."""


class Plain:
    system_prompt = ""

    def list_tools(self):
        return [{"name": "flip", "description": "Flip a coin.", "input_schema": None}]

    def run_tool(self, rollout_id, tool_name):
        return "heads"

    def compute_reward(self, rollout_id, messages, task, termination_reason=None):
        return {"ended": float(termination_reason == "finished")}
