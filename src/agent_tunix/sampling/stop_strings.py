"""Strings that end a completion, found while tokens are sampled.

A stop string may cross the boundaries of tokens. The state of a row is the number of characters of the stop string that
it has written so far. A table holds the next state for each state and token. The decode loop looks up one entry for
each row and token. With several stop strings, the state is the longest beginning of any of them with which the text
ends (Aho and Corasick, "Efficient string matching", 1975).

Axes: S states, V words.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from agent_tunix.errors import ConfigError

# The table takes memory and time for each character and each token. A run of another user may have many of them.
_MOST_CHARACTERS = 1000

# State after a stop string.
STOPPED = -1


def make_stop_table(token_texts: Sequence[str], stop_strings: Sequence[str]) -> Int[np.ndarray, "S V"]:
    """Return the state after each token in each state; `STOPPED` if a stop string ends in the token or before.

    Args:
        token_texts: Text of each token id.
        stop_strings: Strings, none of them empty.

    Raises:
        ConfigError: They have too many characters.
    """
    if (characters := sum(map(len, stop_strings))) > _MOST_CHARACTERS:
        raise ConfigError(
            f"generation.stop_strings must have at most {_MOST_CHARACTERS:,} characters in all, not {characters:,}; "
            "use fewer or shorter ones",
            code="stop_strings_too_long",
        )
    states = sorted({stop[:length] for stop in stop_strings for length in range(len(stop))}, key=len)
    letters = sorted(set("".join(stop_strings)))
    stopped, other = len(states), len(letters)
    after = np.zeros((len(states) + 1, len(letters) + 1), np.int16)
    after[stopped] = stopped
    for state, written in enumerate(states):
        for place, letter in enumerate(letters):
            text = written + letter
            is_stop = any(text.endswith(stop) for stop in stop_strings)
            after[state, place] = stopped if is_stop else _longest_end(text, states)
    place_of = {letter: place for place, letter in enumerate(letters)}
    # Tokens sorted by length: at each character position, the tokens that reach it are the last ones.
    lengths = np.array([len(text) for text in token_texts])
    order = np.argsort(lengths, kind="stable")
    table = np.repeat(np.arange(len(states), dtype=np.int16)[:, None], len(token_texts), axis=1)
    for character in range(lengths.max(initial=0)):
        longer = order[np.searchsorted(lengths[order], character, side="right") :]
        places = np.array([place_of.get(token_texts[token][character], other) for token in longer])
        table[:, longer] = after[table[:, longer], places]
    return np.where(table == stopped, np.int16(STOPPED), table)


def _longest_end(text: str, states: Sequence[str]) -> int:
    return max(state for state, written in enumerate(states) if text.endswith(written))


def cut_at_stop(text: str, stop_strings: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    places = [place for stop in stop_strings if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text
