"""Environment `guess_number`: find a number from hints."""

import random
from typing import Any


class GuessNumber:
    """Find a number between two bounds.

    Reward in [0, 1]: 1 for a right first guess, 0.2 less for each further one, and 0 if the number was not found.

    Args:
        low: Lowest number.
        high: Highest number.
    """

    def __init__(self, low: int = 1, high: int = 20) -> None:
        if low > high:
            raise ValueError(f"low must be at most high, but {low} > {high}")
        self._low = low
        self._high = high
        self._target = low
        self._tries = 0
        self._found = False

    def reset(self, target: int | None = None, seed: int = 0, **row: Any) -> str:
        """Choose the number: the row's `target`, or else one drawn from the seed."""
        self._target = int(target) if target is not None else random.Random(seed).randint(self._low, self._high)
        self._tries = 0
        self._found = False
        return f"I have chosen a whole number between {self._low} and {self._high}. Find it with few guesses."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: The guess.

        Returns:
            "right", or whether the number is "higher" or "lower" than the guess.
        """
        if self._found:
            return "The number was found already."
        self._tries += 1
        if number == self._target:
            self._found = True
            return "right"
        return "higher" if number < self._target else "lower"

    def get_reward(self) -> float:
        """Return the reward."""
        return max(0.0, 1.0 - 0.2 * (self._tries - 1)) if self._found else 0.0
