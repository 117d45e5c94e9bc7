"""An environment whose tools take any time and whose episodes may break, and settings of runs on it."""

WORLD = '''\
"""A tool with state, of random latency; every seventh episode of a step breaks."""

import random
import time


class Counter:
    made = 0

    def reset(self, question: str, seed: int, **row) -> str:
        self.calls = 0
        self.limit = seed % 3
        return "You may ask."

    def calculator(self, expression: str) -> str:
        """Evaluate an expression.

        Args:
            expression: Digits and signs.
        """
        time.sleep(random.random() / 50)
        self.calls += 1
        if len(expression) % 5 == 0:
            raise ValueError("not today")
        return str(len(expression))

    def get_reward(self) -> float:
        if self.limit == 2:
            raise RuntimeError("cannot score")
        return float(self.calls)
'''
ACTING = (
    "environment=calculator",
    "environment.tools=[]",
    "environment.num_workers=3",
    "environment.max_turn_tokens=32",
    "generation.max_prompt_length=128",
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=0",
    "rewards.max_failure_rate=1.0",
)
EPISODES = (
    *ACTING,
    "training.reward_function={environment: {function: environment}, math: {function: math, weight: 0.5}}",
)
