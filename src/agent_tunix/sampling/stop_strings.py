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

# State after a stop string.
STOPPED = -1


def make_stop_table(token_texts: Sequence[str], stop_strings: Sequence[str]) -> Int[np.ndarray, "S V"]:
    """Return the state after each token in each state; `STOPPED` if a stop string ends in the token or before.

    Args:
        token_texts: Text of each token id.
        stop_strings: Strings, none of them empty.

    Raises:
        ConfigError: They have a character that no token has whole: its bytes are then several tokens.
    """
    whole = set().union(*token_texts)
    if unwritable := sorted(set("".join(stop_strings)) - whole):
        raise ConfigError(
            "generation.stop_strings must have characters that tokens of the model hold whole, but it writes "
            f"{unwritable[0]!r} as several tokens; use another stop string",
            code="invalid_tokenizer",
        )
    states = sorted({stop[:length] for stop in stop_strings for length in range(len(stop))}, key=len)
    letters = sorted(set("".join(stop_strings)))
    stopped, other = len(states), len(letters)
    after = np.zeros((len(states) + 1, len(letters) + 1), np.int16)
    after[stopped] = stopped
    place_of = {letter: place for place, letter in enumerate(letters)}
    state_of = {beginning: state for state, beginning in enumerate(states)}
    # As Aho and Corasick: a state goes where its longest proper end that is a state goes, unless it has its own way.
    ends = [0] * len(states)
    for state, beginning in enumerate(states):
        after[state] = after[ends[state]] if beginning else 0
        for letter in {
            stop[len(beginning)] for stop in stop_strings if stop.startswith(beginning) and stop != beginning
        }:
            place, text = place_of[letter], beginning + letter
            if text in stop_strings:
                after[state, place] = stopped
            elif after[state, place] != stopped:
                ends[state_of[text]] = int(after[state, place]) if beginning else 0
                after[state, place] = state_of[text]
    # Tokens sorted by length: at each character position, the tokens that reach it are the last ones.
    lengths = np.array([len(text) for text in token_texts])
    order = np.argsort(lengths, kind="stable")
    table = np.repeat(np.arange(len(states), dtype=np.int16)[:, None], len(token_texts), axis=1)
    for character in range(lengths.max(initial=0)):
        longer = order[np.searchsorted(lengths[order], character, side="right") :]
        places = np.array([place_of.get(token_texts[token][character], other) for token in longer])
        table[:, longer] = after[table[:, longer], places]
    return np.where(table == stopped, np.int16(STOPPED), table)


def cut_at_stop(text: str, stop_strings: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    places = [place for stop in stop_strings if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text
