"""Tokens of mathematical answers, the same for text, LaTeX, Unicode and plain notation."""

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

MOST_TOKENS = 1500


class UnreadableError(Exception):
    """The text is not mathematics, or contains something that the grammar does not read."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_UNICODE = {
    **dict.fromkeys("−–﹣－", "-"),
    **dict.fromkeys("⁄∕", "/"),
    **dict.fromkeys("×·⋅∙∗", "*"),
    **dict.fromkeys("（", "("),
    **dict.fromkeys("）", ")"),
    "，": ",",
    "；": ";",
    "：": ":",
    "÷": "/",
    "√": " √",
    "∞": r"\infty ",
    "≤": r"\le ",
    "⩽": r"\le ",
    "≥": r"\ge ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∖": r"\setminus ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "°": r"^\circ ",
    "′": "'",
    "ℓ": "l",
    **dict.fromkeys("\u00a0\u2009\u202f\u2003", " "),
}
_GREEK = sorted(
    words(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi "
        "chi psi omega"
    )
)
for _name in _GREEK:
    for _style in ("SMALL", "CAPITAL"):
        _letter = unicodedata.lookup(f"GREEK {_style} LETTER {_name.upper().replace('LAMBDA', 'LAMDA')}")
        _UNICODE[_letter] = f"\\{_name if _style == 'SMALL' else _name.capitalize()} "
_UNICODE["ϕ"], _UNICODE["ϵ"] = r"\phi ", r"\epsilon "
_TRANSLATION = str.maketrans(_UNICODE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣ", "0123456789+-nx")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
VULGAR = {
    character: Fraction(unicodedata.numeric(character)).limit_denominator(10) for character in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")

_TIDY: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\\\\(?=(?:[dt]?frac|sqrt|leq?|geq?|pi|text|boxed|infty|cup|left|right|times|cdot)(?![A-Za-z]))(?!.*\\begin)"
        ),
        r"\\",
    ),
    (re.compile(r"(?<=\d)\s*(?:\{,\}|\\!\s*,|,\s*\\!|\\,)\s*(?=\d{3}(?!\d))", re.ASCII), ""),
    (re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle|limits|displaystyle|textstyle|rm|it|bf)(?![A-Za-z])\.?"), " "),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"(?<![,;\s])(?<!(?:and|.or)\})\s*\\q?quad\s*(?=[A-Za-z]\s*=)"), ", "),  # separates two equations
    (re.compile(r"(?<!\\)\\(?:[,;:! ]|q?quad(?![A-Za-z]{2}))|~"), " "),
    (re.compile(r"(?<!\\)\$[ ]*\n\s*\$"), ", "),  # formulas on lines of their own
    (re.compile(r"\\[()\[\]]|(?<!\\)\$+"), " "),
    (re.compile(r"\\\$"), ""),
    (re.compile(r"\\boxed(?![A-Za-z])|\\fbox(?![A-Za-z])"), " "),
    (re.compile(r"\*\*(?=[^*]*\*\*\s*\Z)"), ""),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"(?<=[)\]])\s*U\s*(?=[(\[][^()\[\]]*,)"), r"\\cup "),
    (re.compile(r"(?<![A-Za-z.])(?:np|numpy|math)\.(?=[a-z]+\()"), ""),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"!="), r"\\ne "),
    (re.compile(r"\\not\s*="), r"\\ne "),
    (re.compile(r"[:：]="), "="),
    (re.compile(r"\\(?:mathbb|mathbf|Bbb)\s*\{?\s*([RZNQC])\s*\}?(?![A-Za-z])"), r"\\set\1 "),
    (re.compile(r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?"), r"\\degrees "),
    (re.compile(r"\\(?:colon|vcentcolon)(?![A-Za-z])"), ":"),
)
_INTERVAL = re.compile(r"([(\[\]])([^()\[\],;]*+[,;][^()\[\]]*+)([)\]\[])")
_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2})((?:,\d{3})+)(?![\d,])", re.ASCII)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2})((?: \d{3})+)(?![\d,]| \d)", re.ASCII)

_TOKEN = re.compile(
    r"""\s*+ (?:
        (?P<number> (?: \d++(?>(?:\.\d++|\.(?=/))?) | \.\d++ ) (?>(?:[eE][-+]?\d{1,9}(?![\d.]))?) )
      | (?P<text> \\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname\*?|mathit|mathsf|texttt|textnormal|emph|rm)
            \s*+ \{ (?P<words> [^{}]*+ ) \} )
      | (?P<command> \\[A-Za-z]++\*?+ )
      | (?P<escaped> \\[{}|%\#&_\\] )
      | (?P<letters> [A-Za-z]++ )
      | (?P<symbol> [-+*/^_=<>(){}\[\]|,;:!'%√&½¼¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞] )
    )""",
    re.VERBOSE | re.ASCII,
)

RELATIONS = {
    "=": "=",
    "<": "<",
    ">": ">",
    "\\lt": "<",
    "\\gt": ">",
    "\\le": "≤",
    "\\leq": "≤",
    "\\leqslant": "≤",
    "\\ge": "≥",
    "\\geq": "≥",
    "\\geqslant": "≥",
    "\\ne": "≠",
    "\\neq": "≠",
    "\\approx": "≈",
    "\\simeq": "≈",
    "\\sim": "~",
    "\\in": "∈",
    "\\notin": "∉",
    "\\equiv": "≡",
    "\\to": "→",
    "\\rightarrow": "→",
    "\\mapsto": "→",
    "\\perp": "⊥",
    "\\parallel": "∥",
    "\\subset": "⊂",
    "\\subseteq": "⊆",
    "\\propto": "∝",
}
SET_OPERATIONS = {"\\cup": "union", "\\bigcup": "union", "\\cap": "intersection", "\\setminus": "difference"}
FUNCTIONS = words(
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan arccot asin acos atan ln log lg exp max min gcd "
    "lcm det sgn arg Re Im"
)
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log"}
ACCENTS = words(
    "hat bar vec dot ddot tilde overline widehat overrightarrow underline mathbf boldsymbol bm mathcal mathbb "
    "mathfrak mathscr"
)
IGNORED_COMMANDS = frozenset(("\\angle", "\\triangle", "\\displaystyle", "\\therefore"))
GREEK_COMMANDS = frozenset(
    [*_GREEK, *(name.capitalize() for name in _GREEK), "varepsilon", "vartheta", "varphi", "hbar", "ell", "nabla"]
)
_PLAIN_NAMES = frozenset([*_GREEK, "sqrt", "infinity", "inf", "oo"]) | FUNCTIONS
_SEPARATING_WORDS = {"and": "and", "or": "or"}
_CLEAR_UNITS = words("mm cm km kg mg ml mL lb lbs oz ft hr hrs mph min")
_TWO_LETTER_WORDS = words("is of to in at by no we us it on as an if so do he be my up am pm")
_SENTENCE_WORDS = words("So Thus Hence Then And Or The This That We It If")
STOPPING = words(
    "\\pm \\mp \\cdot \\times \\div \\bullet \\mid \\rfloor \\rceil \\rvert \\rangle \\rbrace \\end \\degrees "
    "\\hline \\prime \\quad \\ldots \\cdots \\dots"
)


class Token(NamedTuple):
    """A token. `spaced` is True if a space precedes it."""

    kind: str
    text: str
    spaced: bool


def tokens_of(text: str, commas: str) -> list[Token]:
    """Return the tokens of an answer or raise UnreadableError. The arguments are those of `grammar.parse`."""
    return _tokenize(_tidy(text, commas), formula="$" in text or "\\" in text)


def _tidy(text: str, commas: str) -> str:
    text = text.strip().translate(_TRANSLATION) if not text.isascii() else text.strip()
    if not text.isascii():
        text = _RAISED.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text)
        text = _LOWERED.sub(lambda found: f"_{{{found[0].translate(_SUBSCRIPTS)}}}", text)
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    if "[" in text or "]" in text:
        text = turn_inward(text)
    if commas == "number":
        text = _join_thousands(text, _THOUSANDS, ",")
        text = _join_thousands(text, _SPACED_THOUSANDS, " ")
    elif commas == "decimal":
        text = text.replace(",", ".")
    text = text.strip()
    while text.endswith((".", ",", ";")) and not text.endswith("\\,"):
        text = text[:-1].rstrip()
    return text


def turn_inward(text: str) -> str:
    """Rewrite `]0, 5[` as `(0, 5)`. Return texts with matching brackets unchanged."""
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            break
    if not depth:
        return text
    return _INTERVAL.sub(
        lambda found: ("(" if found[1] == "]" else found[1]) + found[2] + (")" if found[3] == "[" else found[3]), text
    )


def _join_thousands(text: str, pattern: re.Pattern[str], separator: str) -> str:
    """Join the digit groups of numbers outside brackets."""

    def join(found: re.Match[str]) -> str:
        before = text[: found.start()]
        depth = sum(before.count(opening) for opening in "([") - sum(before.count(closing) for closing in ")]")
        return found[0] if depth > 0 else found[1] + found[2].replace(separator, "")

    return pattern.sub(join, text)


def _tokenize(text: str, *, formula: bool) -> list[Token]:
    tokens: list[Token] = []
    place, end = 0, len(text)
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            if not text[place:].strip():
                break
            raise UnreadableError(f"unknown sign {text[place : place + 1]!r}")
        start = match.start(match.lastgroup or 0) if match.lastgroup != "words" else match.start("text")
        spaced = start > place
        place = match.end()
        kind = match.lastgroup or ""
        if match["text"] is not None:
            tokens += _text_tokens(match["words"], match["text"], spaced)
        elif kind == "letters":
            tokens += _letter_tokens(match["letters"], spaced, formula=formula)
        else:
            tokens.append(Token(kind, match[kind], spaced))
        if len(tokens) > MOST_TOKENS:
            raise UnreadableError("too many signs")
    return tokens


def _text_tokens(words: str, source: str, spaced: bool) -> list[Token]:
    """Return the tokens of a text command: a separator, a function's name, a letter, a number, or words."""
    inner = words.strip(" ~:\\,;")
    if inner.lower() in _SEPARATING_WORDS:
        return [Token("word", _SEPARATING_WORDS[inner.lower()], spaced)]
    if inner in FUNCTIONS and (source.startswith("\\operatorname") or inner not in ("min", "sec")):
        return [Token("command", "\\" + inner, spaced)]
    if (
        source.startswith(("\\mathrm", "\\mathit", "\\text{e}"))
        and len(inner) == 1
        and inner.isalpha()
        and inner in "deiRZ"
    ):
        return [Token("letter", inner, spaced)]
    if re.fullmatch(r"-?\d+(?:\.\d+)?", inner, re.ASCII):
        return [Token("number", inner, spaced)]
    if not inner:
        return []
    kind = (
        "upright"
        if source.startswith("\\math") and len(inner) <= 3 and inner.isalpha() and inner.isascii()
        else "words"
    )
    return [Token(kind, inner, spaced)]


def _letter_tokens(letters: str, spaced: bool, *, formula: bool) -> list[Token]:
    """Return the tokens of a run of letters: a known name, a word, or a product of letters."""
    if len(letters) == 1:
        return [Token("letter", letters, spaced)]
    if letters.lower() in _SEPARATING_WORDS:
        return [Token("word", letters.lower(), spaced)]
    if letters in _PLAIN_NAMES:
        return [Token("command", "\\" + letters, spaced)]
    if letters in _CLEAR_UNITS or letters in ("percent", "pct"):
        return [Token("words", letters, spaced)]
    for name in ("sqrt", "pi", "theta"):
        rest = letters.removesuffix(name)
        if rest != letters and len(rest) == 1:
            return [Token("letter", rest, spaced), Token("command", "\\" + name, False)]
    lower = letters.lower()
    is_word = len(letters) >= (4 if formula else 3) and set(lower) & set("aeiouy") and letters[1:].islower()
    if is_word or (lower in _TWO_LETTER_WORDS and not formula) or letters in _SENTENCE_WORDS:
        return [Token("words", letters, spaced)]
    return [Token("letter", letter, spaced and number == 0) for number, letter in enumerate(letters)]
