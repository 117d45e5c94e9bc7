r"""Extraction of the answer from a response.

If a response has a `</think>`, the text after the last one is searched first. If that text has no answer, the whole
response is searched. The answer is the first of these that exists, even if it is not a number:

1. the last `<answer>…</answer>`, or a `\boxed{…}` inside it;
2. whichever comes last: a `\boxed{…}` (braces may nest; boxes with only commas, "and" or "or" between them are one
   answer), the rest of the line after `####`, or an announcement ("the answer is …", "final answer: …", "answer = …")
   that states a number or a formula on its line;
3. the last number, or the formula (`$…$`, `\(…\)`, `\[…\]`) around it.

The search takes time linear in the length of the response, and never fails.
"""

import re
from collections import deque
from enum import StrEnum
from typing import NamedTuple

from agent_tunix.rewards.answers.grammar import UnreadableError, parse
from agent_tunix.rewards.answers.numbers import NUMBER, ascii_signs, read_number, sign_is_binary

_BOXES_AND_BRACES = re.compile(r"\\{1,2}(?:f|)box(?:ed)?\s*+\{|\\[\\{}]|[{}]")
_PLAIN_BOX = re.compile(r"\\boxed\{([^{}\\]{0,100}+)\}")
# Between boxes that form one answer: a comma, "and", "or" or a wide space, and the name of the next value; or a few
# words that end with "and" or "or". A full stop ends the answer before it.
_BETWEEN_BOXES = re.compile(
    r"""(?>(?: [\s$*]++ | \\[()\[\],;:!\s] )*)
        (?>(?: (?: [,;] | \\q?quad | \\text\{[^{}]{0,20}\b(?:and|or)\s*\} | \b(?:and|or)\b )
               (?>(?: [\s$*]++ | \\[()\[\],;:!\s] )*) )+)
        (?>(?: [A-Za-z](?:_(?:\w|\{\w{1,3}\}))?'? \s{0,3} = [\s$]*+ )?)
      | [\s$*,;\\()\]]* (?:\\text\{\s*)? (?>(?:[A-Za-z()]{1,12}\s){0,4}) (?<=and\s|.or\s) [\s$}\\(]*+""",
    re.VERBOSE,
)
_MOST_BOXES = 24
_PLAIN_STATEMENT = re.compile(r"\s{0,3}(-?\$?\d[\d,]{0,20}(?:\.\d{1,15})?)\.?", re.ASCII)
# A number at the end of a line, without adjacent text that could belong to it.
_PLAIN_END = re.compile(
    r"""(?: \A | [ =] )
    ( \$? (?: [1-9]\d{0,2}(?:,\d{3}){1,5} | \d{1,15} ) (?: \.\d{1,15} )? )
    [.!]? (?: [ ](?!per|pct)[A-Za-z]{1,20} ){0,3} [.!]? \Z""",
    re.VERBOSE | re.ASCII,
)
_PHRASE = re.compile(r"answer(?:\*\*)?\s{0,3}(?:is|=|:)(?:\s{0,3}:)?", re.IGNORECASE | re.ASCII)
_FORMULA = re.compile(
    r"\\\((?P<round>[^\n]*?)\\\)|\\\[(?P<square>.*?)\\\]|(?<![\\\d])\$\$?(?P<dollar>(?>(?:\\[^\n]|[^\n$\\])+))\$",
    re.DOTALL,
)
# Text that is not a formula, although it stands between two dollars: "$5 and then $".
_PROSE_WITHIN = re.compile(
    r"(?<![\\A-Za-z])(?!sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min)[A-Za-z]{3,}(?![^{]*\})|\s\Z|\A\s*\Z"
)
_PREDICATE = re.compile(r"\s*(?:is|are|equals|=)\s", re.ASCII)
_PREDICATE_WITHIN = re.compile(r"\s(?:is|are|equals)\s(?:equal\sto\s|thus\s|therefore\s)?|\s=\s(?=[^=]*\Z)", re.ASCII)
_VERB_WITHIN = re.compile(r"\s(?:is|are|equals)\s", re.ASCII)
# Words that change the number before or after them.
_CHANGED_AFTER = re.compile(
    r"""[ ]{0,2}
    (?: or(?![ ]so\b) | squared | cubed | factorial | times | plus | minus | mod | over | divided | multiplied
      | to[ ]the | hundred | thousand | million | billion | trillion | dozen | lakh | crore
      | halves | thirds | fourths | fifths | tenths | isn't | is[ ](?:not|wrong|incorrect|false) )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CHANGED_BEFORE = re.compile(
    r"""(?: (?:n['’]t|\bcannot)(?:[ ](?:be|equal))?
      | \b(?: not | neither | but | except | minus | negative | half(?:[ ]of)? | (?:root|square|cube)[ ]of
        | log | ln | sin | cos | tan | sqrt ) )[ (]{0,2}\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_JOINT = re.compile(r"\s*,?\s*(?:(?P<word>and|or)\s)?\s*(?=\$|\\[(\[])", re.ASCII)
# A response that is only a formula, or a number in another style. In plain notation, a formula has an unknown but no
# words, or is a pair in brackets.
_WHOLE = re.compile(
    r"""\s* (?: \$[^\n]*\$ | \\\([^\n]*\\\) | \\\[.*\\\] | \d{1,3}(?:[ ]\d{3})+ | \d+,\d+
      | [(\[][^()\[\]\n]*,[^()\[\]\n]*[)\]]
      | (?=[^A-Za-z]*[A-Za-z])
        (?>(?: (?:sqrt|sin|cos|tan|log|ln|exp|pi)(?![A-Za-z])
          | (?<![A-Za-z])[A-Za-z](?![A-Za-z]|\s+\d)
          | [\d+\-*/^=<>().,\[\]{}| ] )*) ) \s* \.? \s*""",
    re.DOTALL | re.ASCII | re.VERBOSE,
)
_SIGN = re.compile(r"[\d√π∞=<>≤≥±$]")
# The digits before a decimal comma, outside brackets.
_WHOLE_PART = re.compile(r"(?<![\w.,(\[{])-?\d{1,12},\Z", re.ASCII)
# A number with a decimal comma, outside brackets.
_WITH_DECIMAL_COMMA = re.compile(r"(?<![\w.,(\[{])\d{1,12},\d{1,15}(?![\w,.]*\d)", re.ASCII)
# The sign of a factorial does not end a sentence: "5! = 120".
_END_OF_SENTENCE = re.compile(r"[.!?;](?=\s|\Z|\*\*)(?!(?<=\d!)\s*(?:=|[+*/×]\s*\d))")
_THOUGHT_ENDS = "</think>"
_LONGEST_STATEMENT = 600
_STATEMENTS_TRIED = 8
_OPERATORS = ("+", "-", "/", "=")  # a formula that ends with one continues in the next formula
_LONGEST_FORMULA_LINE = 1000
_QUOTES = "\"'“”‘’"
_OPENING = re.compile(rf"(?>(?:[\s*:{_QUOTES}]|\\\")*)")

_CHOICE_STATED = re.compile(
    r"(?:answer|option|choice)(?:\*\*)?\s{0,3}(?:is|=|:)?\s{0,3}:?\s{0,3}(?:\*\*|[$\"'“‘])?\(?"
    r"(?P<letter>(?!(?-i:a)\s[a-z]{2})[A-Za-z])(?![A-Za-z]|['’][a-z])",
    re.IGNORECASE | re.ASCII,
)
_CHOICE_ALONE = re.compile(r"(?<![A-Za-z0-9'’])\(?(?P<letter>[A-Z])(?:[).:]|\*\*|\Z|(?=\s|,))", re.ASCII)


_LATEX_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*+)\}")
# In a marked answer: `B`, `(b)`, `B. Paris`; `Option B`, `The answer is B`; `Paris (B)`; but not `a cat` or `A, B`.
_CHOICE_FIRST = re.compile(r"[(\[]?((?!a\s[a-z])[A-Za-z])(?![A-Za-z0-9'’])")
_CHOICE_NAMED = re.compile(r"(?:answer(?:\sis)?|option|choice):?\s\(?([A-Za-z])(?![A-Za-z0-9'’])", re.IGNORECASE)
_CHOICE_LAST = re.compile(r"\(([A-Z])\)\.?\Z")
_SEVERAL_CHOICES = re.compile(r"(?>(?:[(\[]?[A-Z][)\].]?(?:\s*[,;/&]\s*|\s+(?:and|or)\s+|\s*\Z)){2,20})")
# Another choice after one, and before one. Without brackets, nothing but the end may follow: "A or B", but not
# "A, B is false".
_AND_OR = r"\s*(?:[,;/&|]\s*(?:and\s|or\s)?|and\s|or\s)\s*(?:(?:also|else|perhaps|maybe|possibly|option|choice)\s)*"
_CHOICE_AFTER = re.compile(
    rf"""[)\].*$}}"'”’]*{_AND_OR}[*$"'“‘]*
    (?:[(\[](?P<marked>[A-Za-z])[)\]]|(?P<bare>[A-Z])(?=[)\].*$"'”’:]*\s*(?:[,;/&.!?]|and\s|or\s|\Z|\n)))""",
    re.VERBOSE | re.IGNORECASE,
)
_CHOICE_BEFORE = re.compile(
    rf"""(?<![A-Za-z0-9'’])[(\[]?(?-i:(?P<marked>[A-Z]))[)\].*$"'”’]*{_AND_OR}[*$"'“‘(\[]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
# In a marked answer: the letter of a second option with its text, as in "A. Paris or B. Rome".
_CHOICE_LATER = re.compile(r"(?:\b(?:or|and)|[,;/&])\s+(?:[(\[](?P<marked>[A-Z])[)\]]|(?P<bare>[A-Z])[).:]\s)")
_CHOICE_DENIED = re.compile(
    r"(?:\b(?:cannot|not|never|neither|nor)|n['’]t)\s(?:be\s)?(?:option\s|choice\s)?[*$\"'(\[]*\Z", re.IGNORECASE
)


class Source(StrEnum):
    """The place in a response where its answer was found."""

    TAGGED = "tagged"
    BOXED = "boxed"
    HASHES = "####"
    STATED = "stated"
    LAST = "last number"


# Looking up a member of an enumeration is slow.
_TAGGED, _BOXED, _HASHES, _STATED, _LAST = Source


class Extraction(NamedTuple):
    """An answer as written, and its source."""

    text: str  # the answer without surrounding white space; "" if its place is empty
    source: Source


def extract_answer(response: str) -> str | None:
    r"""Return the answer of a response as written, or None.

    >>> extract_answer("<reasoning>3 + 4</reasoning><answer> 7 </answer>")
    '7'
    >>> extract_answer(r"so \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    >>> extract_answer("12-5 eggs")
    '5'
    >>> extract_answer("The answer is 18, for 3 + 15 is that.")
    '18'
    """
    extraction = _find(response)
    return None if extraction is None else extraction[0] or None


def find_answer(response: str) -> Extraction | None:
    """Return the answer of a response and where it was found, or None.

    >>> find_answer("#### 18")
    Extraction(text='18', source=<Source.HASHES: '####'>)
    """
    extraction = _find(response)
    return None if extraction is None else Extraction(*extraction)


def _find(response: str) -> tuple[str, Source] | None:
    spoken = _after_thought(response)
    return (spoken and _find_in(spoken)) or _find_in(response)


def _after_thought(response: str) -> str:
    """Return the text after the last `</think>`, or ""."""
    return response[response.rindex(_THOUGHT_ENDS) + len(_THOUGHT_ENDS) :] if _THOUGHT_ENDS in response else ""


def _find_in(response: str) -> tuple[str, Source] | None:
    # Searching for one character is much faster than for a word, and most responses lack these characters.
    tagged = tagged_answer(response)
    if tagged is not None:
        boxed = boxed_answer(tagged)
        return (tagged if boxed is None else boxed).strip(), _TAGGED
    start, boxed = _boxes(response) if "\\" in response else (-1, "")
    hashes = response.rfind("####") if "#" in response else -1
    stated = _stated_answer(response, max(start, hashes, 0))
    if stated is not None:
        return stated, _STATED
    if hashes > start:
        return response[hashes + 4 :].strip().partition("\n")[0].rstrip(), _HASHES
    if start >= 0:
        return boxed.strip(), _BOXED
    if len(response) <= _LONGEST_STATEMENT and _WHOLE.fullmatch(response) and _reads(response):
        return response.strip(), _LAST
    last = _last_number(response)
    return None if last is None else (last, _LAST)


def tagged_answer(response: str) -> str | None:
    """Return the text between the last `<answer>` and `</answer>`, unchanged, or None."""
    if "</answer>" not in response:
        return None
    end = response.rindex("</answer>")
    start = response.rfind("<answer>", 0, end)
    return None if start < 0 else response[start + len("<answer>") : end]


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last closed `\boxed{…}` or `\fbox{…}`; braces may nest.

    Boxes that belong together form one answer.

    >>> boxed_answer(r"\boxed{(2,2)} and \boxed{(6,2)}")
    '(2,2), (6,2)'
    """
    start, content = _boxes(text)
    return None if start < 0 else content


def _boxes(text: str) -> tuple[int, str]:
    """Return the position and content of the last box, joined with preceding boxes that belong to it; -1 for none."""
    last = text.rfind("\\boxed")
    if last < 0 and "\\fbox" not in text:
        return -1, ""
    if last >= 0 and "\\fbox" not in text and text.find("\\boxed") == last:
        plain = _PLAIN_BOX.match(text, last)
        if plain is not None:
            return plain.start(1), plain[1]
    open_braces: list[tuple[int, int]] = []
    boxes: deque[tuple[int, int, int]] = deque(maxlen=_MOST_BOXES)  # positions of command, opening and closing brace
    for token in _BOXES_AND_BRACES.finditer(text):
        if token[0] == "}":
            begin, opened = open_braces.pop() if open_braces else (-1, -1)
            if begin >= 0:
                boxes.append((begin, opened, token.start()))
        elif token[0][-1] == "{" and len(token[0]) != 2:
            open_braces.append((token.start() if len(token[0]) > 1 else -1, token.end()))
    if not boxes:
        return -1, ""
    ordered = sorted(boxes)
    place = len(ordered) - 1
    parts = [ordered[place]]
    while place and _BETWEEN_BOXES.fullmatch(text, ordered[place - 1][2] + 1, ordered[place][0]):
        place -= 1
        parts.append(ordered[place])
    contents = dict.fromkeys(text[opened:closed].strip() for _, opened, closed in reversed(parts))
    return parts[0][1], text[parts[0][1] : parts[0][2]] if len(contents) == 1 else ", ".join(contents)


def extract_choice(response: str, letters: str = "ABCDE") -> str | None:
    r"""Return the letter that a response chooses, in upper case, or None.

    An answer in tags, in a box or after `####` must hold one letter: alone, first or named (`B`, `(b)`, `B. Paris`,
    `Option B`, `Paris (B)`). If no answer is marked, the last "answer is B", "answer: (B)" or "option B" counts, or
    else the last capital of `letters` that stands alone. A and I are also words. In free text they count only with a
    bracket, dot or colon, or at the end. Several letters that stand together (`A, B`, "A or B") give None.

    >>> extract_choice("<answer>(b) Paris</answer>"), extract_choice("so the answer is C."), extract_choice("A cat.")
    ('B', 'C', None)
    """
    allowed = letters.upper()
    spoken = _after_thought(response)
    return (spoken and _choice_in(spoken, allowed)) or _choice_in(response, allowed)


def _choice_in(response: str, allowed: str) -> str | None:
    marked = _marked_answer(response)
    if marked is not None:
        text = _LATEX_TEXT.sub(r"\1", marked).strip().strip("*$ {}\"'").strip()
        if _SEVERAL_CHOICES.fullmatch(text):
            return None
        choice_match = _CHOICE_FIRST.match(text) or _CHOICE_NAMED.search(text) or _CHOICE_LAST.search(text)
        if (
            choice_match is None
            or choice_match[1].upper() not in allowed
            or _is_other(_CHOICE_LATER.search(text), choice_match[1], allowed)
        ):
            return None
        return _only_choice(choice_match, 1, allowed)
    stated = [match for match in _CHOICE_STATED.finditer(response) if match["letter"].upper() in allowed]
    if stated:
        return _only_choice(stated[-1], "letter", allowed)
    alone = deque(
        (
            match
            for match in _CHOICE_ALONE.finditer(response)
            if match["letter"] in allowed
            and (match["letter"] not in "AI" or _is_marked_letter(match))
            and not _CHOICE_DENIED.search(response[max(0, match.start() - 30) : match.start()])
        ),
        maxlen=1,
    )
    return _only_choice(alone[0], "letter", allowed) if alone else None


def _only_choice(match: re.Match[str], letter: int | str, allowed: str) -> str | None:
    """Return the letter of a choice, or None if another choice stands beside it."""
    text, choice = match.string, match[letter].upper()
    before = _CHOICE_BEFORE.search(text[max(0, match.start() - 40) : match.start()])
    after = _CHOICE_AFTER.match(text, match.end(letter))
    return None if any(_is_other(another, choice, allowed) for another in (before, after)) else choice


def _is_other(another: re.Match[str] | None, choice: str, allowed: str) -> bool:
    if another is None:
        return False
    letter = next(filter(None, another.groups())).upper()
    return letter != choice.upper() and letter in allowed


def _marked_answer(response: str) -> str | None:
    tagged = tagged_answer(response)
    if tagged is not None:
        boxed = boxed_answer(tagged)
        return tagged if boxed is None else boxed
    boxed = boxed_answer(response)
    if boxed is not None:
        return boxed
    _, marker, rest = response.rpartition("####")
    return rest.strip().partition("\n")[0] if marker else None


def _is_marked_letter(match: re.Match[str]) -> bool:
    return not match[0][-1].isalpha() or match.end() == len(match.string)


def _stated_answer(response: str, start: int) -> str | None:
    """Return the statement of the last "the answer is …" after `start` that states a number or a formula."""
    end = len(response)
    for _ in range(_STATEMENTS_TRIED):
        end = max(response.rfind("nswer", start, end), response.rfind("NSWER", start, end))
        if end < 1 or end < start:
            return None
        phrase = _PHRASE.match(response, end - 1)
        if phrase is not None:
            rest = response[phrase.end() : phrase.end() + _LONGEST_STATEMENT]
            stated = _statement(_OPENING.sub("", rest, count=1).partition("\n")[0])
            if stated is not None:
                return stated
    return None


def _statement(line: str) -> str | None:
    plain = _PLAIN_STATEMENT.fullmatch(line)
    if plain is not None:
        return plain[1]
    line = line.strip()
    formula = _FORMULA.match(line)
    formulas, place = ("", 0) if formula is None else _formulas_together(line, formula)
    end = _END_OF_SENTENCE.search(line, place)
    sentence = (line[: end.start()] if end else line).strip().strip('*"“”').strip()
    if formula is not None and not _PREDICATE.match(line, formula.end()):
        goes_on = "$" in sentence[place:] or formulas.endswith(_OPERATORS) or sentence.endswith("otherwise")
        return sentence if goes_on and _reads(sentence) else formulas
    if read_number(sentence) is not None or (not _VERB_WITHIN.search(sentence) and _reads(sentence)):
        return sentence
    *_, predicate = [None, *_PREDICATE_WITHIN.finditer(sentence)]
    if predicate is not None:  # "The value of $x$ is 5": the predicate is the answer
        inner = _statement(sentence[predicate.end() :])
        if inner is not None:
            return inner
    formula = _FORMULA.search(sentence)
    if formula is not None:
        return _content(formula)
    if "\\" in sentence or sentence[:1] in ("(", "[", "{", "√", "π"):
        return sentence
    _, equals, right = sentence.rpartition("=")
    if equals and right.strip():
        return _first_number(right)
    return _first_number(sentence)


def _formulas_together(line: str, formula: re.Match[str]) -> tuple[str, int]:
    """Join formulas with only separators between them, as in `$3$ and $5$`. Return the text and its end position."""
    joined = _content(formula)
    while (joint := _JOINT.match(line, formula.end())) is not None:
        following = _FORMULA.match(line, joint.end())
        if following is None:
            break
        formula = following
        separator = " " if joined.endswith(_OPERATORS) else f" {joint['word']} " if joint["word"] else ", "
        joined += separator + _content(formula)
    return joined, formula.end()


def _reads(text: str) -> bool:
    """Return True for a formula in plain notation, such as `2x + 3` or `(1, 2)`, but not for a word."""
    if len(text) > _LONGEST_STATEMENT or not _SIGN.search(text):
        return False
    try:
        parse(text)
    except UnreadableError:
        return False
    return True


def _first_number(text: str) -> str | None:
    match = NUMBER.search(ascii_signs(text))
    if match is None:
        return None
    start, end = match.end("sign") if sign_is_binary(match) else match.start(), match.end()
    whole = _WITH_DECIMAL_COMMA.match(text, match.start("digits")) if match.end("digits") == end else None
    if whole is not None:
        end = whole.end()
    if _CHANGED_AFTER.match(text, end) or _CHANGED_BEFORE.search(text[: match.start()]):
        return text.strip()
    if whole is not None and end > match.end():
        return ("-" if "-" in match.string[start : whole.start()] else "") + whole[0]  # without its currency
    return text[start:end]


def _last_number(response: str) -> str | None:
    """Return the last number, or the formula around it. A minus or hyphen after other text is not the number's sign."""
    end = len(response.rstrip())
    while end >= 0:  # a number never spans lines
        start = response.rfind("\n", 0, end) + 1
        line = response[start:end]
        if "\\" not in line and "$" not in line[:-20]:
            plain = _PLAIN_END.search(line, max(0, len(line) - 60))
            if plain is not None:
                return plain[1]
        matches = deque((match for match in NUMBER.finditer(ascii_signs(line)) if not _is_in_name(match)), maxlen=1)
        if matches:
            last = matches[0]
            whole_part = _WHOLE_PART.search(line[max(0, last.start() - 20) : last.start()])
            start = last.start() - len(whole_part[0]) if whole_part else last.start()
            return _formula_around(line, last) or line[last.end("sign") if sign_is_binary(last) else start : last.end()]
        end = start - 1
    return None


def _is_in_name(number: re.Match[str]) -> bool:
    """Return True for a number directly after a letter (`H2O`). Letters without capitals do not count (Chinese)."""
    before = number.string[max(0, number.start() - 3) : number.start()]
    is_letter = before[-1:].lower() != before[-1:].upper()
    return is_letter and not before.endswith(("Rs", "USD", "EUR")) and number["sign"] is None


def _formula_around(line: str, number: re.Match[str]) -> str | None:
    """Return the formula around a number in a line, if it is more than the number."""
    if "\\" not in line and "$" not in line:
        return None
    start = max(0, number.end() - _LONGEST_FORMULA_LINE)
    if line.count("$", 0, start) % 2 and (end := line.find("$", start)) >= 0:  # inside a formula
        start = end + 1
    for formula in _FORMULA.finditer(line, start, number.end() + _LONGEST_FORMULA_LINE):
        if formula.start() < number.end() <= formula.end():
            content = _content(formula)
            return None if _PROSE_WITHIN.search(content) else content
    return None


def _content(formula: re.Match[str]) -> str:
    return (formula["round"] or formula["square"] or formula["dollar"] or "").strip()
