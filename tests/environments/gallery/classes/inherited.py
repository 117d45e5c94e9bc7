"""Tools of a base class, a static and a cached tool, and helpers that are none."""

import functools


class Base:
    def look(self) -> str:
        """Look around."""
        return self._describe()

    def _describe(self):
        return "a room"

    @property
    def size(self):
        raise RuntimeError("a property is no tool")


class House(Base):
    def reset(self, **row):
        self.opened = set()

    def open_door(self, number: int, quietly: bool = False) -> str:
        """Open a door.

        Parameters
        ----------
        number : int
            Number of the door.
        quietly : bool
            Open it without a sound.
        """
        self.opened.add(number)
        return f"door {number} is open{' (quietly)' if quietly else ''}"

    @staticmethod
    def help() -> str:
        """Explain the house."""
        return "There are two doors."

    @functools.lru_cache  # noqa: B019
    def describe_door(self, number: int) -> str:
        """Describe a door.

        Parameters
        ----------
        number : int
            Number of the door.
        """
        return f"door {number} is {'green' if number % 2 else 'red'}"

    @functools.cached_property
    def area(self):
        raise RuntimeError("a property is no tool")

    def get_reward(self):
        return len(self.opened) / 2
