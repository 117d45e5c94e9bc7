"""Tool `calculator`: exact arithmetic, without `eval`."""

import ast
import operator
import warnings
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

_MOST_CHARACTERS = 500
# Size of numerators and denominators; about 1,200 decimal digits.
_MOST_BITS = 4_000
_MOST_DIGITS = 1_000
_SIGNIFICANT = 12

_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\n": " ", "\r": " "})
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda one, other: Fraction(one // other),
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": lambda value, digits=Fraction(0): _round(value, _whole(digits)),
}


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression exactly.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, and the functions abs, min, max and round, for example
            (3 + 4) * 0.5.

    Returns:
        The value: an integer, a decimal, or a fraction with its approximation.
    """
    text = expression.translate(_SPELLINGS).replace("^", "**").strip()
    if not text or len(text) > _MOST_CHARACTERS or not text.isascii():
        raise ValueError(f"the expression must have 1 to {_MOST_CHARACTERS} characters, all of them ASCII")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about spellings such as `1if`
            tree = ast.parse(text, mode="eval")
        return _show(_Evaluation(text).value(tree.body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None


class _Evaluation:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr) -> Fraction:
        return _bounded(self._value(node))

    def _value(self, node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return self._number(node, number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                return _power(self.value(left), self.value(right))
            case ast.BinOp(op=kind, left=left, right=right) if type(kind) in _OPERATORS:
                one, other = self.value(left), self.value(right)
                if other == 0 and isinstance(kind, ast.Div | ast.FloorDiv | ast.Mod):
                    raise ZeroDivisionError("division by zero")
                return _OPERATORS[type(kind)](one, other)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
                return self._call(name, [self.value(one) for one in args])
        raise ValueError(f"{ast.unparse(node)[:80]!r} is not arithmetic; use numbers, + - * / // % ** and parentheses")

    def _call(self, name: str, values: list[Fraction]) -> Fraction:
        if name in ("min", "max") and len(values) == 1:
            return values[0]
        if len(values) > {"abs": 1, "round": 2}.get(name, len(values)):
            raise ValueError(f"{name} takes fewer values")
        return _FUNCTIONS[name](*values)

    def _number(self, node: ast.Constant, number: int | float) -> Fraction:
        """Return a number as it is written; a float would have lost digits."""
        if isinstance(number, int):
            return Fraction(number)
        try:
            decimal = Decimal(self._text[node.col_offset : node.end_col_offset].replace("_", ""))
        except InvalidOperation:
            raise ValueError("a number cannot be read") from None
        if abs(decimal.adjusted()) > _MOST_DIGITS:
            raise ValueError(f"a number has more than {_MOST_DIGITS:,} digits")
        return Fraction(decimal)


def _round(value: Fraction, digits: int) -> Fraction:
    if abs(digits) > _MOST_DIGITS:
        raise ValueError(f"round takes at most {_MOST_DIGITS:,} digits")
    return Fraction(round(value, digits))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    power = _whole(exponent)
    if base == 0 and power < 0:
        raise ZeroDivisionError("0 cannot have a negative power")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(power) > 2 * _MOST_BITS:
        raise ValueError("the power is too large")
    if bits <= 1:  # 0, 1 or -1
        power = power % 2 if base < 0 else min(max(power, -1), 1)
    return base**power


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ValueError(f"{_show(value)} must be a whole number here")
    return value.numerator


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise ValueError("the numbers are too large")
    return value


def _show(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    remainder = value.denominator
    twos = (remainder & -remainder).bit_length() - 1
    remainder >>= twos
    fives = 0
    while remainder % 5 == 0:
        remainder //= 5
        fives += 1
    digits = max(twos, fives)
    if remainder == 1 and digits <= 2 * _SIGNIFICANT:
        whole = abs(value.numerator) * 10**digits // value.denominator
        text = str(whole).rjust(digits + 1, "0")
        return f"{'-' if value < 0 else ''}{text[:-digits]}.{text[-digits:]}"
    return f"{value.numerator}/{value.denominator} (about {_approximation(value)})"


def _approximation(value: Fraction) -> str:
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.{_SIGNIFICANT}g}".lower()
