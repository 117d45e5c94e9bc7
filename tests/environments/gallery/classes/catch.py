"""Written as TRL's environments are: `reset(**kwargs)`, tools, `get_reward`."""


class CatchEnv:
    def __init__(self, width=5):
        self.width = width

    def reset(self, start, **kwargs) -> str | None:
        self.place, self.rows_left, self.reward = start, 3, 0.0
        return f"The ball is above column 2, you are at {self.place}."

    def move(self, direction: str) -> str:
        """
        Move the paddle.

        Args:
            direction: One of "left", "stay" and "right".
        """
        if self.rows_left == 0:
            raise ValueError("the game is over")
        self.place += {"left": -1, "stay": 0, "right": 1}[direction]
        self.rows_left -= 1
        if self.rows_left == 0:
            self.reward = float(self.place == 2)
        return f"You are at {self.place}; {self.rows_left} rows are left."

    def get_reward(self):
        return self.reward
