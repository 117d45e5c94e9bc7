"""Gymnasium's five values, `seed` and `options`."""


class Doors:
    def reset(self, *, seed=None, options=None):
        self.right = options.get("right", seed % 3)
        self.steps = 0
        return "There are doors 0, 1 and 2.", {"seed": seed}

    def step(self, action: int):
        self.steps += 1
        won = action == self.right
        return ("It opens." if won else "Locked."), float(won), won, self.steps >= 4, {}

    def close(self):
        self.right = None
