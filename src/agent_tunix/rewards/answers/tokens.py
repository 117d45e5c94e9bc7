"""Tokens of mathematical answers, the same for text, LaTeX, Unicode and plain notation."""

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from agent_tunix.rewards.answers.units import is_product, is_unit

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
    "∨": r"\lor ",
    "∧": r"\land ",
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

_NUMBERS = r"(?:\s(?:numbers?|values?)(?:\s(?:of|for)\s[a-z])?)"
# `\left\{\begin{array}{l} … \end{array}\right.` are cases.
_BRACED_ROWS = re.compile(
    r"\\(?:left\s*\\)?\{\s*\\begin\s*\{(?:array|aligned|matrix)\}(?:\s*\{[lcr| ]*\})?"
    r"(.*?)\\end\s*\{(?:array|aligned|matrix)\}\s*\\right\s*\.",
    re.DOTALL,
)
_TIDY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b([aApP])\.\s?[mM]\.?(?![A-Za-z])"), r"\1m"),
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
    (re.compile(r"[:：]=|==|&\s*="), "="),
    (re.compile(r"[.,;]\s*(?=\\\\\s|\\end\s*\{)"), " "),
    (re.compile(r"\\(?:mathbb|mathbf|Bbb)\s*\{?\s*([RZNQC])\s*\}?(?![A-Za-z])"), r"\\set\1 "),
    (re.compile(r"\\([RZNQ])(?![A-Za-z])"), r"\\set\1 "),
    (re.compile(r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?"), r"\\degrees "),
    (re.compile(r"(\\\}|\\set[RZNQC])\s*-\s*(?=\\\{)"), r"\1 \\setminus "),
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
SET_OPERATIONS = {
    "\\cup": "union",
    "\\bigcup": "union",
    "\\cap": "intersection",
    "\\setminus": "difference",
    "\\backslash": "difference",
}
FUNCTIONS = words(
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan arccot asin acos atan ln log lg exp max min gcd "
    "lcm det sgn arg Re Im"
)
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log"}
ACCENTS = words(
    "hat bar vec dot ddot tilde overline widehat overrightarrow underline mathbf boldsymbol bm mathcal mathbb "
    "mathfrak mathscr"
)
OPERATORS = words("sum prod int iint iiint oint lim")
IGNORED_COMMANDS = frozenset(("\\angle", "\\triangle", "\\displaystyle", "\\therefore"))
GREEK_COMMANDS = frozenset(
    [*_GREEK, *(name.capitalize() for name in _GREEK), "varepsilon", "vartheta", "varphi", "hbar", "ell", "nabla"]
)
_PLAIN_NAMES = frozenset([*_GREEK, "sqrt", "infinity", "inf", "oo"]) | FUNCTIONS
_SEPARATING_WORDS = {"and": "and", "or": "or"}
CONDITIONAL_WORDS = words("if for when whenever where otherwise elsewhere")
_SEPARATING_COMMANDS = {"\\lor": "or", "\\vee": "or", "\\land": "and", "\\wedge": "and"}
# Names of sets in words, which are a whole answer.
_SETS_IN_WORDS = tuple(
    (re.compile(rf"(?:(?:the\s)?set\sof\s)?(?:(?:all|any|every)\s)?(?:the\s)?{pattern}", re.IGNORECASE), name)
    for pattern, name in (
        (rf"real(?:s|{_NUMBERS})", r"\setR"),
        (r"integers?", r"\setZ"),
        (rf"natural{_NUMBERS}", r"\setN"),
        (rf"rational(?:s|{_NUMBERS})", r"\setQ"),
        (rf"complex{_NUMBERS}", r"\setC"),
        (r"empty\sset|(?:there\s(?:is|are)\s)?no\s(?:real\s)?solutions?", r"\emptyset"),
    )
)
# "where k is an integer", "for any integer k".
_INTEGER = re.compile(
    r"""[\s,(]*(?:\b(?:where|for|with|and)\s)?\s*(?:\b(?:any|all|some|every|each)\s)?\s*
    (?: \$?\b(?P<first>[A-Za-z])\b\$?\s+(?:(?:is|are)\s)?\s*(?:(?:an|any|arbitrary)\s)?\s*integers?\b
      | integers?\s+\$?(?P<last>[A-Za-z])\b\$? ) \)?""",
    re.VERBOSE,
)
# "2kπ (k ∈ Z)"
_DECLARATION = re.compile(
    r"(?<=[^\s,(\\~])(?>(?:\s|~|\\(?:[ ,;:!]|q?quad))*)\(\s*([A-Za-z]\s*\\in(?![A-Za-z])[^()]*)\)(?=[\s$.]*\Z)"
)
_SET_WORD = re.compile(r"real|integer|natural|rational|complex|empty|solution", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*+)\}")
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


def set_in_words(text: str) -> str | None:
    r"""Return the command of the set that an answer in words names: `\setR` for "all real numbers"."""
    if _SET_WORD.search(text) is None:
        return None
    text = " ".join(_TEXT.sub(r"\1", text).strip("$ .").split())
    return next((name for pattern, name in _SETS_IN_WORDS if pattern.fullmatch(text)), None)


def tokens_of(text: str, commas: str) -> list[Token]:
    """Return the tokens of an answer or raise UnreadableError. The arguments are those of `grammar.parse`."""
    words = set_in_words(text)
    if words is not None:
        return [Token("command", words, False)]
    return _tokenize(_tidy(text, commas), formula="$" in text or "\\" in text)


def _tidy(text: str, commas: str) -> str:
    text = text.strip().translate(_TRANSLATION) if not text.isascii() else text.strip()
    if not text.isascii():
        text = _RAISED.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text)
        text = _LOWERED.sub(lambda match: f"_{{{match[0].translate(_SUBSCRIPTS)}}}", text)
    text = as_cases(text)
    if "integer" in text:
        text = _INTEGER.sub(lambda match: rf", {match['first'] or match['last']}\in\setZ ", _TEXT.sub(r" \1 ", text))
    if "\\in" in text or "∈" in text:
        text = _DECLARATION.sub(r", \1", text)
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


def as_cases(text: str) -> str:
    """Rewrite rows after a single brace, which nothing closes, as cases."""
    return _BRACED_ROWS.sub(r"\\begin{cases}\1\\end{cases}", text) if "\\begin" in text else text


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
        lambda match: ("(" if match[1] == "]" else match[1]) + match[2] + (")" if match[3] == "[" else match[3]), text
    )


def _join_thousands(text: str, pattern: re.Pattern[str], separator: str) -> str:
    """Join the digit groups of numbers outside brackets."""

    def join(match: re.Match[str]) -> str:
        before = text[: match.start()]
        depth = sum(before.count(opening) for opening in "([") - sum(before.count(closing) for closing in ")]")
        return match[0] if depth > 0 else match[1] + match[2].replace(separator, "")

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
            is_factor = _is_operator(text, match.start("letters") - 1) or _is_operator(text, place)
            after_number = bool(tokens) and tokens[-1].kind == "number"
            tokens += _letter_tokens(
                match["letters"], spaced, formula=formula, is_factor=is_factor, after_number=after_number
            )
        elif kind == "command" and match[kind] in _SEPARATING_COMMANDS:
            tokens.append(Token("word", _SEPARATING_COMMANDS[match[kind]], spaced))
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


def _is_operator(text: str, place: int) -> bool:
    """Return True if an operator, as in `1+cab`, stands at a place of a text, or before or after a space there."""
    return 0 <= place < len(text) and text[place] in "+-*/^="


def _letter_tokens(letters: str, spaced: bool, *, formula: bool, is_factor: bool, after_number: bool) -> list[Token]:
    """Return the tokens of a run of letters: a known name, a word, or a product of letters.

    Args:
        letters: The letters.
        spaced: True if a space precedes them.
        formula: True if the answer is marked as a formula, in which words are rare.
        is_factor: True if an operator stands directly before or after them.
        after_number: True if they follow a number, so that they may be its unit.
    """
    if len(letters) == 1:
        return [Token("letter", letters, spaced)]
    if letters.lower() in _SEPARATING_WORDS:
        return [Token("word", letters.lower(), spaced)]
    if letters.lower() in CONDITIONAL_WORDS and spaced:
        return [Token("words", letters.lower(), spaced)]
    if letters in _PLAIN_NAMES:
        return [Token("command", "\\" + letters, spaced)]
    if letters in _CLEAR_UNITS or letters in ("percent", "pct") or (after_number and not formula and is_unit(letters)):
        return [Token("words", letters, spaced)]
    for name in ("sqrt", "pi", "theta"):
        rest = letters.removesuffix(name)
        if rest != letters and len(rest) == 1:
            return [Token("letter", rest, spaced), Token("command", "\\" + name, False)]
    fewest = 4 if formula or is_factor or (after_number and not spaced) else 3
    is_word = len(letters) >= fewest and letters[1:].islower() and not is_product(letters)
    if is_word or (letters.lower() in _TWO_LETTER_WORDS and not formula) or letters in _SENTENCE_WORDS:
        return [Token("words", letters, spaced)]
    return [Token("letter", letter, spaced and number == 0) for number, letter in enumerate(letters)]
