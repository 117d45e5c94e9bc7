"""A position in a list of tokens, the base of the grammar's parsers."""

from abc import ABC, abstractmethod

from agent_tunix.rewards.answers.tokens import Token, UnreadableError
from agent_tunix.rewards.answers.tree import Node

DEEPEST = 40
_END = Token("end", "", False)


class Cursor(ABC):
    r"""A position in a list of tokens, with the current depth of nesting.

    Attributes:
        bars: Number of open `|`.
        in_cases: True within cases, whose rows `\\` separates; elsewhere it is a set difference.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [*tokens, _END, _END]
        self.place = 0
        self.depth = 0
        self.bars = 0
        self.in_cases = False

    def peek(self) -> str:
        """Return the text of the next token. For words, return a space and the kind, so that no sign equals them."""
        token = self.tokens[self.place]
        return token.text if token.kind not in ("words", "upright", "word") else f" {token.kind}"

    def kind(self) -> str:
        """Return the kind of the next token."""
        return self.tokens[self.place].kind

    def is_words(self, ahead: int = 0) -> bool:
        """Return True if the next token, or the one `ahead` places after it, consists of words."""
        return self.tokens[self.place + ahead].kind in ("words", "upright")

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.tokens[self.place]
        self.place += 1
        return token

    def skip(self, text: str) -> bool:
        """Move past the next token and return True if it has this text."""
        if self.peek() == text:
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Move past the next token, which must have this text."""
        if not self.skip(text):
            raise UnreadableError(f"{text!r} is missing")

    def descend(self) -> None:
        """Go one level deeper; raise UnreadableError beyond the deepest level."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableError("too deep")

    def ascend(self) -> None:
        """Go one level up."""
        self.depth -= 1

    @abstractmethod
    def items(self) -> Node:
        """Read one item, or several with separators between them."""

    @abstractmethod
    def item(self) -> Node:
        """Read a relation, a ratio, a set or an expression."""

    @abstractmethod
    def bracketed(self) -> Node:
        """Read a group in brackets, a tuple or an interval."""

    @abstractmethod
    def braced(self) -> Node:
        """Read a set in braces."""

    @abstractmethod
    def command(self) -> Node:
        """Read a command, with its arguments."""

    @abstractmethod
    def conditional(self, value: Node) -> Node:
        """Read the condition of a value, if any."""
