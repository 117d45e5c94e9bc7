"""Rewards for keeping to one language."""

import re
import unicodedata
from functools import lru_cache

from agent_tunix.rewards.sample import Score

# The first words of the Unicode names of each language's letters.
_SCRIPTS = {
    "latin": ("LATIN",),
    "zh": ("CJK",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ko": ("HANGUL", "CJK"),
    "ru": ("CYRILLIC",),
    "uk": ("CYRILLIC",),
    "bg": ("CYRILLIC",),
    "ar": ("ARABIC",),
    "fa": ("ARABIC",),
    "he": ("HEBREW",),
    "el": ("GREEK",),
    "hi": ("DEVANAGARI",),
    "bn": ("BENGALI",),
    "th": ("THAI",),
}
_LATIN = frozenset("en de fr es it pt nl sv da no fi pl cs sk hu ro tr vi id".split())  # noqa: SIM905
_NOT_PROSE = re.compile(
    r"```[\s\S]*?```|\\[A-Za-z]+|<[^<>\n]{1,40}>|https?://\S+|(?<![^\W\d_])[\u0370-\u03ff](?![^\W\d_])"
)
_LONGEST = 20_000
# Greek letters that occur in formulas of any language.
_FORMULA_SIGNS = frozenset("πθαβγλμφωΔΣΩ")
# Letters whose names do not begin with their script.
_ALSO = {"々": "CJK", "〆": "CJK", "ª": "LATIN", "º": "LATIN"}


def language_consistency_reward(response: str, language: str = "en") -> Score:
    """Score whether the response keeps to the script of its language. Range [0, 1].

    - 1.0: every letter belongs to the script of `language`
    - between: the share of letters that do
    - 0.0: none, or no letters at all

    Only scripts are told apart, not languages: German passes as English, Chinese does not. Code blocks, tags, LaTeX
    commands and URLs do not count, nor do Greek letters that stand alone or are common in formulas. Only the first
    20,000 characters are checked.

    >>> score = get_reward_function("language_consistency")
    >>> score("two and two make four"), score("等于 4", language="zh"), score("so it is 四四四四")
    (1.0, 1.0, 0.6)
    """
    scripts = _SCRIPTS.get("latin" if language in _LATIN else language)
    if scripts is None:
        names = ", ".join(sorted({*_SCRIPTS, *_LATIN} - {"latin"}))
        raise ValueError(f"language must be one of {names}, not {language!r}")
    letters = [c for c in _NOT_PROSE.sub(" ", response[:_LONGEST]) if c.isalpha() and c not in _FORMULA_SIGNS]
    right = sum(_script(letter) in scripts for letter in letters)
    share = right / len(letters) if letters else 0.0
    return Score(share, detail=f"{right} of {len(letters)} letters are in the script of {language}")


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    """Return the first word of the letter's name in Unicode, which is its script."""
    return _ALSO.get(letter) or unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
