r"""Exact reading of a number as written.

Numbers become fractions, never floats: `1,234`, `$1,234.50`, `-5`, `−5`, `.5`, `1/2`, `1 1/2`, `½`, `1½`,
`\frac{1}{2}`, `50%`, `3e4`, `3 \times 10^4`, `2.5 million`. Words or a unit may stand around a single number (`18
dollars`, `x = 18`, `18.`). Continental separators are read if they are unambiguous: `1.234,5`, `1.234.567`, `1 234,5`,
and no-break or thin spaces between thousands. `1 234`, `0,5` and `12,34` may be one number or two and are not read.

No other text with two numbers or an operator is read, because the result would be a guess. The same holds for a number
of more than 2,000 digits, a number directly after a letter (`H2O`), a number before a letter in a formula (`$6m$`), and
a number before letters that are neither a unit nor a word (`6xy`).
"""

import decimal
import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from agent_tunix.rewards.answers.units import are_factors

MOST_DIGITS = 2000
_LONGEST_ANSWER = 2 * MOST_DIGITS
_LONGEST_REMEMBERED = 80

# Most answers have this form, which is read without further checks.
_PLAIN = re.compile(r"(-?)\$?(-?)(\d{1,15}|[1-9]\d{0,2}(?:,\d{3}){1,5})(?:\.(\d{1,15}))?\.?", re.ASCII)

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_VULGAR = {
    character: Fraction(unicodedata.numeric(character)).limit_denominator(10) for character in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}

# No quantifier below can try a run of characters twice, so every search is linear in the text.
NUMBER = re.compile(
    rf"""
    (?P<sign>[-+])? (?:\\?[$€£¥₹][ ]?)? (?P<inner_sign>-)?
    (?:
        (?: (?P<whole>\d{{1,9}}) (?: [ ](?=\d) | [ ]?(?=[\\{"".join(_VULGAR)}]) ) )?
        (?:
            (?P<vulgar>[{"".join(_VULGAR)}])
          |
            \\[dtc]?frac (?: [ ]?\{{ (?P<top_sign>-)? (?P<top>\d++) \}} [ ]?\{{ (?P<bottom>\d++) \}}
                           | [ ]?(?P<top_digit>\d) [ ]?(?P<bottom_digit>\d) )
          |
            (?P<numerator>\d++) / (?P<denominator>\d++)
        )
      |
        (?P<continental> [1-9]\d{{0,2}}+ (?: (?>(?:\.\d{{3}}(?!\d)){{2,300}}) (?>(?:,\d++)?)
                                       | (?>(?:[\xa0\u2009\u202f]\d{{3}}(?!\d)){{1,300}}) (?>(?:[.,]\d++)?)
                                       | \.\d{{3}},\d{{1,2}}(?![\d,])
                                       | (?>(?:[ ]\d{{3}}(?!\d)){{1,6}}) ,\d{{1,2}}(?![\d,]) ) )
      |
        (?: (?P<digits> [1-9]\d{{0,2}} (?>(?:,\d{{3}}(?!\d))+) | \d++ ) (?>(?P<decimals>\.\d++)?)
          | (?P<bare_decimals> \.\d++ ) )
        (?>(?: [eE] (?P<exponent>[-+]?\d++)
          | [ ]?(?:\\times|\\cdot|[×·*xX])[ ]?10 (?: (?:\^|\*\*)(?P<power>[-+]?\d++)
                                                   | \^\{{(?P<braced_power>[-+]?\d++)\}}
                                                   | (?P<raised>[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++) ) )?)
    )
    (?>(?P<percent> [ ]? (?: \\?% | per[ ]?cent\b | pct\b ) )?)
    """,
    re.VERBOSE | re.ASCII,
)
# Text allowed around the only number of an answer: words, units and their powers, hyphens and slashes between letters,
# harmless punctuation.
_AROUND = re.compile(
    r"""(?>(?: (?<![^\W\d_])
        (?: [mckd]?m | ft | feet | in | inch(?:es)? | yd | mi | s | sec | met(?:er|re)s? | units? | kg | g | h | hr )
        [ ]?\^ (?: -?[123] | \{-?[123]\} ) (?!\d)
      | [^\W\d_π¹²³¼-¾⁰-₉⅐-ↈ]
      | [\s.,;:!?'"`()\[\]°$€£¥₹¢≈]
      | (?<=[A-Za-z]) [²³]
      | (?<=[^\W\d_]) [-/] (?=[^\W\d_]) )*)""",
    re.VERBOSE,
)
# Superscript and subscript digits, and fractions. They are not letters, although `\w` matches them.
_RAISED = "¹²³¼-¾⁰-₉⅐-ↈ"
# Words that change the number beside them.
_SCALE_WORD = re.compile(
    rf"""(?<![^\W\d_{_RAISED}])
    (?: not | isn | aren | never | or(?![ ]so\b) | but | except | unless | wrong | incorrect | false
      | minus | negative | hundred | thousand | million | billion | trillion | lakh | crore | dozen | half
      | k | bn | mn | tn | mil | mio
      | (?: third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | hundredth | thousandth ) ) s?+
    (?![^\W\d_])""",
    re.VERBOSE | re.IGNORECASE,
)
# A denial directly before a number: "can't be 5". Elsewhere it may deny something else: "5, which can't be divided".
_DENIED = re.compile(r"(?:n't|\bcannot)(?:\s(?:be|equal))?[\s(]{0,2}\Z", re.IGNORECASE)
# Words that apply a function to a number.
_FUNCTION = re.compile(
    r"""(?<![^\W\d_])
    (?: sqrt | log | ln | exp | sin | cos | tan | cot | csc | root | factorial | (?: square | cube )\ of )
    (?![^\W\d_])""",
    re.VERBOSE | re.IGNORECASE,
)
_POWER_WORD = re.compile(r"\s?(?:squared|cubed|factorial|and\s(?:a|one|two|three)\s)", re.IGNORECASE)
# A factorial, or an unknown beside the number, changes it. Units of one letter do not.
_NO_UNIT = re.compile(
    rf"(?<=[\d}}{_RAISED}])!|(?<![^\W\d_{_RAISED}])(?:[xyznikpqruvwbcefjoXYZ]|pi)(?![^\W\d_])"
    rf"|(?<=[\d{_RAISED}])[aBDEGOPQRU](?![^\W\d_])"
)
_LETTERS = re.compile(r"(?P<space>[ ]?)(?P<letters>[A-Za-z]{2,})(?!['\u2019A-Za-z-])", re.ASCII)
# Words before or after a number that make it the bound of a range.
_BOUND_BEFORE = re.compile(
    r"""\b(?: (?P<below> (?:less|fewer|smaller|lower|shorter|younger|earlier)\sthan | under | below )
      | (?P<least> at\sleast | no\s(?:less|fewer|smaller|lower)\sthan )
      | (?P<most> at\smost | up\sto | no\s(?:more|greater|larger|higher)\sthan | within )
      | (?P<above> (?:more|greater|larger|bigger|higher|longer|older|later)\sthan
        | over | above | beyond | exceed(?:s|ing)? )
    )\s[\s$(]*(?:a|an|the|about)?\s?\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_BOUND_AFTER = re.compile(
    r"""[^,.;]*?\b(?: (?P<least> at\s(?:the\s)?least | and\s(?:above|up|over|more) | (?<!the\s)minimum )
      | (?P<most> at\s(?:the\s)?most | and\s(?:below|under|less) | (?<!the\s)maximum ) )\b[\s$).]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_BOUNDS = {"below": "<", "above": ">", "most": "≤", "least": "≥"}
# Several equations before an equals sign: `x = 1 or x = 2` is not 2.
_SEVERAL = re.compile(r"[,;]|\b(?:or|and)\b")
_MULTIPLES = {
    "dozen": 12,
    **dict.fromkeys(("k", "thousand"), 10**3),
    "lakh": 10**5,
    **dict.fromkeys(("m", "mn", "million"), 10**6),
    "crore": 10**7,
    **dict.fromkeys(("b", "bn", "billion"), 10**9),
    **dict.fromkeys(("t", "tn", "trillion"), 10**12),
}
_MULTIPLE = re.compile(
    r"[ ]?(dozen|thousand|lakh|million|crore|billion|trillion|mn|bn|tn)s?(?![^\W\d_])", re.IGNORECASE
)
# A single letter is a multiple only of money; otherwise m may mean metres.
_MULTIPLE_OF_MONEY = re.compile(r"([kmbt])(?![^\W\d_]|-)", re.IGNORECASE)
_MONEY = re.compile(r"[$€£¥₹]")
_REPEATING = re.compile(r"(-?)(\d{0,40})\.(\d{0,40})\\(?:overline|bar)\{(\d{1,40})\}", re.ASCII)
# In a formula, a letter after a number is a factor unless it is a clear unit; a letter before it is part of a name.
_LETTER_FACTOR = re.compile(
    rf"(?<=[\d}}{_RAISED}])\s?(?!(?:[cmk]m|[km]g|m[lL]|ft|in|lb|oz)(?![A-Za-z]))[A-Za-z]{{1,2}}(?![A-Za-z])", re.ASCII
)
_UPRIGHT = re.compile(r"\\(?:text|mathrm|mbox)")
_LETTER_BEFORE = re.compile(r"[^\W\d_](?:(?<!Rs)(?<!Re)(?<!USD)(?<!EUR)|\()\Z")
# "min at x = 1" means more than 1.
_EXTREME = re.compile(r"(?<![A-Za-z])(?:min|max)(?:imum|ima)?\b")
# "The value of x = 5" is about x.
_LEADING_WORDS = re.compile(r"\A(?:[A-Za-z]{2,20}[:,]?\s+|a\s+)+(?=\S+\s*\Z)")
_MINUS_WORD = re.compile(r"\A(?:minus|negative)\s++(?=[\d.$])", re.IGNORECASE | re.ASCII)

# Each character maps to one character, so positions in the text stay the same.
_MINUS_SIGNS = str.maketrans({**dict.fromkeys("−–﹣－", "-"), "⁄": "/", "∕": "/"})
_LATEX = (
    (re.compile(r"\\(?:text|textnormal|mathrm|mbox|textbf|mathbf)\{([^{}]*+)\}"), r"\1"),
    (re.compile(r"\\[dt]?frac\s*\{\s*([A-Za-z]{1,4})\s*\}\s*\{\s*([A-Za-z]{1,4})\s*\}"), r"\1/\2"),
    (re.compile(r"(?<=\d)\\[,!](?=\d{3}(?!\d))", re.ASCII), ""),
    (re.compile(r"\{,\}|\\!,|,\\!"), ","),
    (re.compile(r"\^\{?\\circ\}?"), "°"),
    (re.compile(r"~"), " "),
    (re.compile(r"\\(?:[,;:! ()\[\]]|(?:left|right|quad)\b)"), " "),
)
_MARKDOWN_BOLD = re.compile(r"(?<!\d)\*\*([^*]++)\*\*(?!\d)")


class Number(NamedTuple):
    """A number as written."""

    text: str
    written: Fraction  # the number, without its percent sign
    percent: bool = False  # True if a percent sign follows
    subject: str = ""  # text before its equals sign, without spaces: "x" in `x = 18`; "" for none
    unit: str = ""  # its currency, or the text after it
    bound: str = ""  # the relation of a range to it: "<" in "less than 5"; "" for none

    @property
    def value(self) -> Fraction:
        """The value: 1/2 for 50%."""
        return self.written / 100 if self.percent else self.written


def number_text(value: float | decimal.Decimal) -> str:
    """Return a finite number as reference text: `72` for 72.0, `0.1` for 0.1."""
    if not isinstance(value, int) and -(2**53) < value < 2**53 and value == int(value):
        return str(int(value))
    return str(value)


def parse_number(text: str) -> Fraction | None:
    """Return the value of a text, or None if it does not hold exactly one number.

    >>> parse_number("$1,234.50"), parse_number("50%"), parse_number("12-5")
    (Fraction(2469, 2), Fraction(1, 2), None)
    """
    number = read_number(text)
    return None if number is None else number.value


def read_number(text: str) -> Number | None:
    """Return the only number in a text, with its percent sign, or None."""
    if len(text) > _LONGEST_REMEMBERED:
        return _read_number(text) if len(text) <= _LONGEST_ANSWER else None
    return _read_short_number(text)


def _read_number(text: str) -> Number | None:
    plain = _PLAIN.fullmatch(text)
    if plain is not None:
        outer, inner, digits, decimals = plain.groups()
        size = Fraction(int(digits.replace(",", "")))
        if decimals:
            size += Fraction(int(decimals), 10 ** len(decimals))
        return Number(text, size if outer == inner else -size)
    if "\\" in text and (repeating := _REPEATING.fullmatch(text.strip(" $."))) is not None:
        return Number(text, _repeating(*repeating.groups()))
    is_formula = text.count("$") > 1 or "\\" in text
    bare = text.replace("\\$", "").replace("$", "") if text.count("$") > 1 else text  # dollars that delimit a formula
    left, _, right = undressed(bare).rpartition("=")
    if _EXTREME.search(left):
        return None
    if left.endswith(("<", ">", "!")) or ("=" in left and _SEVERAL.search(left, left.index("="))):
        return None
    right, minus_words = _MINUS_WORD.subn("", right.strip())
    match = NUMBER.search(right)
    if match is None or sign_is_binary(match):
        return None
    if not (_AROUND.fullmatch(right, 0, match.start()) and _AROUND.fullmatch(right, match.end())):
        return None
    multiple = _MULTIPLE.match(right, match.end())
    if multiple is None and _MONEY.search(match[0]):
        multiple = _MULTIPLE_OF_MONEY.match(right, match.end())
    after = match.end() if multiple is None else multiple.end()
    if _SCALE_WORD.search(right, 0, match.start()) or _SCALE_WORD.search(right, after):
        return None
    if _DENIED.search(right[max(0, match.start() - 20) : match.start()]):
        return None
    if match["digits"] and "," in match["digits"] and right[: match.start()].rstrip().endswith(("(", "[", "{")):
        return None  # (2,251,252) is a tuple
    if _LETTER_BEFORE.search(right[max(0, match.start() - 4) : match.start()]):
        return None
    if _UPRIGHT.search(text) is None:
        if is_formula and _LETTER_FACTOR.match(right, match.end()):
            return None
        letters = _LETTERS.match(right, after)
        if letters is not None and are_factors(letters["letters"], attached=not letters["space"]):
            return None
    if _FUNCTION.search(right, 0, match.start()) or _POWER_WORD.match(right, after):
        return None
    if _NO_UNIT.search(right, 0, match.start()) or _NO_UNIT.search(right, after):
        return None
    value = _value_of(match)
    if value is None:
        return None
    if multiple is not None:
        value *= _MULTIPLES[multiple[1].lower()]
    subject = "".join(_LEADING_WORDS.sub("", left).split())
    return Number(
        text,
        -value if minus_words else value,
        match["percent"] is not None,
        subject,
        unit="%" if match["percent"] else "".join(_MONEY.findall(match[0])) or right[match.end() :],
        bound=_bound(right[: match.start()], right[after:]),
    )


def _bound(before: str, after: str) -> str:
    match = _BOUND_BEFORE.search(before) or _BOUND_AFTER.match(after)
    return "" if match is None else _BOUNDS[match.lastgroup or ""]


# The completions of a group give few different answers, so most are in the cache.
_read_short_number = lru_cache(maxsize=8192)(_read_number)


def sign_is_binary(match: re.Match[str]) -> bool:
    """Return True if the sign before a number joins it to the text before: `12-5`, `12 - 5`, `x-5`, `covid-19`."""
    if match["sign"] is None:
        return False
    text, index = match.string, match.start() - 1
    if index >= 0 and (text[index].isalnum() or text[index] in "_)]}%"):
        return True
    while index >= 0 and text[index] in " \t":
        index -= 1
    return index >= 0 and (text[index].isdigit() or text[index] in ")%")


def undressed(text: str) -> str:
    """Return an answer without its LaTeX and Markdown markup."""
    text = ascii_signs(text.strip())
    if "\\" in text or "{" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return _MARKDOWN_BOLD.sub(r"\1", text) if "**" in text else text


def ascii_signs(text: str) -> str:
    """Replace other minus signs and fraction slashes with `-` and `/`. Positions stay the same."""
    return text if text.isascii() else text.translate(_MINUS_SIGNS)


def _value_of(match: re.Match[str]) -> Fraction | None:
    """Return the number before the percent sign; None for a division by zero or too many digits."""
    groups = match.groupdict()
    if groups["digits"] or groups["bare_decimals"]:
        value = _decimal(groups)
    elif groups["continental"]:
        value = _continental(groups["continental"])
    else:
        value = _fraction(groups)
    if value is None:
        return None
    negative = (groups["sign"] == "-") != (groups["inner_sign"] is not None)
    return -value if negative else value


def _decimal(groups: dict[str, str | None]) -> Fraction | None:
    digits = (groups["digits"] or "").replace(",", "")
    decimals = (groups["decimals"] or groups["bare_decimals"] or ".")[1:]
    raised = (groups["raised"] or "").translate(_SUPERSCRIPTS)
    exponent = groups["exponent"] or groups["power"] or groups["braced_power"] or raised or "0"
    if len(digits) + len(decimals) > MOST_DIGITS or len(exponent) > 5 or abs(int(exponent)) > MOST_DIGITS:
        return None
    value = Fraction(int(digits + decimals))
    if shift := int(exponent) - len(decimals):
        value *= Fraction(10) ** shift
    return value


def _repeating(sign: str, whole: str, decimals: str, period: str) -> Fraction:
    """Return the value of a repeating decimal: all digits minus those before the period, over 99…900…0."""
    value = Fraction(
        int(whole + decimals + period) - int(whole + decimals or "0"), 10 ** len(decimals) * (10 ** len(period) - 1)
    )
    return -value if sign else value


def _continental(text: str) -> Fraction | None:
    whole, comma, decimals = text.partition(",")
    if not comma and "." in text and not text[: text.index(".")].isdigit():  # thin spaces and a decimal point
        whole, _, decimals = text.partition(".")
    whole = "".join(character for character in whole if character.isdigit())
    if len(whole) + len(decimals) > MOST_DIGITS:
        return None
    return Fraction(int(whole + decimals), 10 ** len(decimals))


def _fraction(groups: dict[str, str | None]) -> Fraction | None:
    whole = int(groups["whole"] or "0")
    if groups["vulgar"]:
        return whole + _VULGAR[groups["vulgar"]]
    numerator = groups["numerator"] or groups["top"] or groups["top_digit"] or "0"
    denominator = groups["denominator"] or groups["bottom"] or groups["bottom_digit"] or "0"
    if len(numerator) + len(denominator) > MOST_DIGITS or int(denominator) == 0:
        return None
    part = Fraction(int(numerator), int(denominator))
    if groups["top_sign"]:
        return None if groups["whole"] else -part
    return whole + part
