"""OpenEnv's server side: the observation itself has `reward` and `done`; results as dicts."""


class Countdown:
    def __init__(self, start):
        self.left = start

    def reset(self, seed=None):
        return {"observation": f"{self.left} left", "reward": None, "done": False}

    def step(self, action: str):
        self.left -= 1
        return {"observation": f"{self.left} left", "reward": None if self.left else 1.0, "done": self.left == 0}
