"""Parser of LaTeX commands: fractions, roots, functions, named sets and matrices."""

import re

from agent_tunix.rewards.answers.expressions import ExpressionParser, number_node, text_of
from agent_tunix.rewards.answers.tokens import (
    ACCENTS,
    ALIASES,
    FUNCTIONS,
    GREEK_COMMANDS,
    IGNORED_COMMANDS,
    OPERATORS,
    RELATIONS,
    STOPPING,
    UnreadableError,
)
from agent_tunix.rewards.answers.tree import BOUND_NAME, Node, negative, product

_DIFFERENTIAL = Node("symbol", ("d",))


class CommandParser(ExpressionParser):
    """A parser that reads commands in addition to expressions."""

    def command(self) -> Node:
        """Read a command with its arguments."""
        name = self.take().text[1:]
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.call(ALIASES.get(name, name))
        if name in ("infty", "infinity", "inf", "oo"):
            return Node("infinity", ())
        if name in GREEK_COMMANDS:
            return self.symbol(name)
        if name in ("binom", "dbinom", "tbinom"):
            return Node("call", ("binomial", self.argument(), self.argument()))
        if name.startswith("set") and len(name) == 4:
            return self.named_set(name[3])
        if name in ("emptyset", "varnothing", "oslash"):
            return Node("named", ("empty",))
        if name in ACCENTS:
            inside = self.raw_argument()
            accent = "" if name in ("mathbf", "boldsymbol", "bm", "mathcal") else name + ":"
            return self.symbol(f"{accent}{inside}")
        if name in ("lfloor", "lceil", "lvert", "langle", "lbrace", "lvert"):
            return self.fenced(name)
        if "\\" + name in IGNORED_COMMANDS:
            return self.factor()
        if name == "begin":
            return self.environment()
        if name in OPERATORS:
            return self.operator(name)
        raise UnreadableError(f"\\{name} is not read")

    def fraction(self) -> Node:
        r"""Read the arguments of `\frac`."""
        derivative = self.derivative()
        if derivative is not None:
            return derivative
        return Node("quotient", (self.argument(), self.argument()))

    def derivative(self) -> Node | None:
        r"""Read `\frac{dy}{dx}` as one symbol, so that the letters do not cancel; return None for other fractions."""
        texts: list[str] = []
        place, groups = self.place, 0
        while groups < 2 and place < len(self.tokens) and place - self.place < 12:
            token = self.tokens[place]
            texts.append(token.text)
            groups += token.text == "}"
            place += 1
        match = re.fullmatch(
            r"\{(d|\\partial)(?:\^\{?2\}?)?(\\?\w*)\}\{(d|\\partial)(\\?\w+)(?:\^\{?2\}?)?\}", "".join(texts)
        )
        if match is None:
            return None
        self.place = place
        return Node("symbol", ("".join(texts),))

    def root(self) -> Node:
        r"""Read the degree and the argument of `\sqrt`."""
        degree = number_node("2")
        if self.peek() == "[":
            self.take()
            degree = self.item()
            self.expect("]")
        if self.peek() == "(":
            return Node("call", ("root", self.bracketed(), degree))
        return Node("call", ("root", self.argument(), degree))

    def operator(self, name: str) -> Node:
        """Read a sum, a product, an integral or a limit with its bounds."""
        low = high = Node("named", ("none",))
        while self.peek() in ("^", "_"):
            if self.take().text == "_":
                low = self.argument()
            else:
                high = self.argument()
        body = self.product()
        names: list[Node] = []
        if low.kind == "relation" and low.args[1].kind == "symbol":
            names, low = [low.args[1]], Node("relation", (low.args[0], Node("named", ("",)), *low.args[2:]))
        while body.kind == "product" and _DIFFERENTIAL in body.args[-2:-1]:
            names.append(body.args[-1])
            body = Node("product", (number_node("1"), *body.args[:-2]))
        for number, variable in enumerate(names):
            body = _renamed(body, variable.args[0], f"{BOUND_NAME}{self.depth}.{number}")
        return Node("operator", (name, body, low, high, Node("named", (str(len(names)),))))

    def call(self, name: str) -> Node:
        """Read the exponent, the base and the arguments of a function."""
        power: Node | None = None
        base: Node | None = None
        while self.peek() in ("^", "_"):
            if self.take().text == "_":
                base = self.argument()
            else:
                power = negative(self.exponent()) if self.skip("-") else self.exponent()
        if name in ("max", "min", "gcd", "lcm"):
            inside = self.bracketed() if self.peek() == "(" else self.braced()
            if inside.kind in ("named", "builder"):
                raise UnreadableError("a set of unknown size")
            items = inside.args[1:] if inside.kind == "bracket" else inside.args if inside.kind == "set" else (inside,)
            return Node("call", (name, *items))
        argument = self.call_argument()
        if power is not None and power == negative(number_node("1")) and name in ("sin", "cos", "tan", "cot"):
            return Node("call", ("arc" + name, argument))
        arguments = (argument,) if base is None else (argument, base)
        value = Node("call", (name, *arguments))
        return value if power is None else Node("power", (value, power))

    def call_argument(self) -> Node:
        r"""Read the argument of a function, which needs no brackets: `\sin 2x`."""
        if self.peek() in ("(", "[", "|") and not (self.peek() == "|" and self.bars):
            return self.atom()
        if self.peek() == "-":
            self.take()
            return negative(self.call_argument())
        value = self.factor()
        while True:
            text = self.peek()
            if self.kind() == "command" and (text[1:] in FUNCTIONS or text in STOPPING or text in RELATIONS):
                return value
            if self.kind() not in ("letter", "command", "number") and text not in ("{", "√"):
                if text == "/" and self.tokens[self.place + 1].kind == "number" and not self.tokens[self.place].spaced:
                    self.take()
                    value = Node("quotient", (value, self.factor()))
                    continue
                return value
            if not self.starts_factor() or self.kind() == "number":
                return value
            value = product(value, self.factor())

    def named_set(self, name: str) -> Node:
        r"""Read the exponent of a named set, as in `\mathbb{R}^2`."""
        if self.skip("^"):
            return Node("named", (f"{name}^{text_of(self.argument())}",))
        return Node("named", (name,))

    def fenced(self, name: str) -> Node:
        r"""Read up to the closing command of `\lfloor`, `\lceil`, `\lvert`, `\langle` or `\lbrace`."""
        closing = {
            "lfloor": "\\rfloor",
            "lceil": "\\rceil",
            "lvert": "\\rvert",
            "langle": "\\rangle",
            "lbrace": "\\rbrace",
        }
        bars, self.bars = self.bars, 0
        inside = self.items()
        self.bars = bars
        self.expect(closing[name])
        if name in ("langle", "lbrace"):
            items = inside.args[1:] if inside.kind == "list" else (inside,)
            return Node("set", items) if name == "lbrace" else Node("bracket", ("()", *items))
        return Node("call", ({"lfloor": "floor", "lceil": "ceiling", "lvert": "abs"}[name], inside))

    def environment(self) -> Node:
        """Read a matrix or cases, row by row."""
        name = self.environment_name()
        if name in ("cases", "dcases", "rcases"):
            return self.cases()
        if name not in ("pmatrix", "bmatrix", "vmatrix", "matrix", "array", "Bmatrix", "smallmatrix"):
            raise UnreadableError(f"the environment {name}")
        if name == "array":
            while self.kind() != "end" and self.take().text != "}":
                pass
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while True:
            if self.peek() == "\\end":
                self.take()
                self.environment_name()
                break
            if self.skip("\\\\"):
                rows.append(tuple(row))
                row = []
                continue
            if self.skip("&") or self.skip(",") or self.skip("\\hline"):
                continue
            row.append(self.sum())
        if row:
            rows.append(tuple(row))
        if not rows or len({len(one) for one in rows}) != 1:
            raise UnreadableError("a matrix of unequal rows")
        return Node("call", ("det", Node("matrix", tuple(rows)))) if name == "vmatrix" else Node("matrix", tuple(rows))

    def cases(self) -> Node:
        """Read equations that hold together, or values with their conditions."""
        rows: list[Node] = []
        outside, self.in_cases = self.in_cases, True
        while not self.skip("\\end"):
            value = self.item()
            while self.skip(","):
                pass
            if self.skip("&") and self.peek() not in ("\\\\", "\\end"):
                value = self.conditional(value) if self.is_condition() else Node("case", (value, self.item()))
            rows.append(value)
            while self.peek() in ("\\\\", ",", ";", "."):
                self.take()
        self.in_cases = outside
        self.environment_name()
        if not rows:
            raise UnreadableError("no cases")
        return Node("list", (",", *rows)) if len(rows) > 1 else rows[0]

    def environment_name(self) -> str:
        """Read the name of an environment in braces."""
        self.expect("{")
        name = ""
        while not self.skip("}"):
            if self.kind() == "end":
                raise UnreadableError("an environment without a name")
            name += self.take().text.lstrip("\\")
        return name


def _renamed(node: Node, old: str, new: str) -> Node:
    """Return a node with another name for a variable, also in subscripts."""
    if node.kind == "symbol":
        letter, underscore, subscript = node.args[0].partition("_")
        subscript = re.sub(rf"(?<![A-Za-z\\]){re.escape(old)}(?![A-Za-z])", lambda _: new, subscript)
        return Node("symbol", ((new if letter == old else letter) + underscore + subscript,))
    return Node(node.kind, tuple(_renamed(part, old, new) if isinstance(part, Node) else part for part in node.args))
