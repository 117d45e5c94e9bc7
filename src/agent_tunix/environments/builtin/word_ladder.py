"""Environment `word_ladder`: change one word into another, one letter at a time."""

import random
from collections import deque
from typing import Any

_LIST = """
ace act add age ago aid aim air all and ant any ape arc are ark arm art ash ask bad bag ban bar bat bay bed bee beg
bet bid big bin bit bow box boy bud bug bun bus but buy cab can cap car cat cob cod cog cop cot cow cry cub cup cut
dad dam day den dew did dig dim din dip dog dot dry dug ear eat egg ego elf elk end era fan far fat fed fee few fig
fin fit fix fly fog fox fun fur gap gas gem get gum gun gut had ham has hat hay hen her hid him hip his hit hop hot
how hub hug hut ice ill ink jam jar jaw jet job jog joy jug key kid kin kit lab lad lag lap law lay led leg let lid
lie lip lit log lot low mad man map mat may men met mix mob mom mop mud mug nap net new nod nor not now nut oak oar
odd off oil old one our out owl own pad pan pat paw pay pea pen pet pie pig pin pit pop pot put rag ram ran rap rat
raw ray red rib rid rim rip rob rod rot row rub rug run rut sad sat saw say sea see set sew she shy sin sip sir sit
six sky sob son sow spy sum sun tab tag tan tap tar tax tea ten the tie tin tip toe ton top toy try tub tug two use
van vet wag war was wax way web wed wet who why wig win won yes yet zoo
"""
_WORDS = frozenset(_LIST.split())
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class WordLadder:
    """Change one three-letter word into another, one letter at a time, over words of a list.

    Reward in [0, 1]: the length of the shortest ladder divided by the number of tries, and 0 if the goal was not
    reached.

    Args:
        steps: Length of the shortest ladder, if the row names no words.
    """

    def __init__(self, steps: int = 3) -> None:
        if not 1 <= steps <= 6:
            raise ValueError(f"steps must be from 1 to 6, not {steps}")
        self._steps = steps
        self._word = self._goal = ""
        self._shortest = 0
        self._tries = 0

    def reset(self, start: str | None = None, goal: str | None = None, seed: int = 0, **row: Any) -> str:
        """Choose two words: the row's `start` and `goal`, or else a pair drawn from the seed."""
        if start is None or goal is None:
            start, goal = self._draw(random.Random(seed))
        self._word, self._goal = start.lower(), goal.lower()
        self._shortest = measure_ladders(self._word).get(self._goal, 0)
        if not self._shortest:
            raise ValueError(f"no ladder leads from {start!r} to {goal!r}; choose two different words of the list")
        self._tries = 0
        return (
            f"Change the word {self._word!r} into {self._goal!r}, one letter at a time. Every step must be a common "
            "English word of three letters."
        )

    def change(self, word: str) -> str:
        """Change the present word into another that differs in one letter.

        Args:
            word: The next word.

        Returns:
            The present word, or why it cannot be changed so.
        """
        if self._word == self._goal:
            return "The goal was reached already."
        self._tries += 1
        word = word.strip().lower()
        if word not in _WORDS:
            return f"{word[:20]!r} is not in the list of words. The word is still {self._word!r}."
        if word not in _neighbours(self._word):
            return f"{word!r} does not differ from {self._word!r} in exactly one letter."
        self._word = word
        return "You reached the goal." if word == self._goal else f"The word is now {word!r}."

    def get_reward(self) -> float:
        """Return the reward."""
        return min(1.0, self._shortest / self._tries) if self._word == self._goal and self._tries else 0.0

    def _draw(self, chance: random.Random) -> tuple[str, str]:
        while True:
            start = chance.choice(sorted(_WORDS))
            goals = sorted(word for word, steps in measure_ladders(start).items() if steps == self._steps)
            if goals:
                return start, chance.choice(goals)


def _neighbours(word: str) -> set[str]:
    candidates = {word[:place] + letter + word[place + 1 :] for place in range(len(word)) for letter in _LETTERS}
    return (candidates & _WORDS) - {word}


def measure_ladders(start: str) -> dict[str, int]:
    """Return word → length of the shortest ladder from `start`, 0 for itself."""
    lengths = {start: 0}
    queue = deque([start] if start in _WORDS else [])
    while queue:
        word = queue.popleft()
        for other in sorted(_neighbours(word) - lengths.keys()):
            lengths[other] = lengths[word] + 1
            queue.append(other)
    return lengths
