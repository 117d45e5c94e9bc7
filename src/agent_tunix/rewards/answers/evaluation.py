"""Values of expressions: exact if they are rational, otherwise to forty digits. Unknowns get random values.

Expressions that agree at several random rational or complex points count as equal: two different polynomials or
analytic functions agree there with probability zero (Schwartz and Zippel). Expressions that differ at a point are
different. But roots and logarithms have branches, so after a difference at a complex point, real points decide.
"""

import functools
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from agent_tunix.rewards.answers.tree import Node, walk
from agent_tunix.rewards.answers.work import charge, charge_number, remembered

_MOST_BITS = 100_000
_LARGEST_EXPONENT = 20_000
_DIGITS = 40
_LARGEST_LOGARITHM = 20_000
# Binary exponent above which forty digits cannot show a difference of 1.
_LARGEST_OF_FORTY_DIGITS = 80
# Arguments of the gamma function, which takes a third of a second for the largest numbers.
_LARGEST_OF_GAMMA = 1_000_000
_RELATIVE_ERROR = 1e-25
# Of values that count as equal, relative to them and for small ones absolute. Larger terms that cancel leave noise.
_LARGEST_ERROR = 1e-12
_CONSTANTS = frozenset(("e", "i", "pi"))
_REAL_FUNCTIONS = frozenset(("abs", "floor", "ceiling", "max", "min", "gcd", "lcm", "sgn"))
# Number of real points. Their coordinates are below and above 1, and have both signs.
REAL_POINTS = 10


class UndefinedError(Exception):
    """The expression has no value at a point, its value is too large, or it cannot be evaluated."""


class TooLargeError(UndefinedError):
    """The value exists, but is too large to compute."""


_NO_VALUE = (UndefinedError, ArithmeticError, ValueError, MemoryError, RecursionError)


class _InexactError(Exception):
    """The expression is not rational."""


@remembered(4096)
def symbols(node: Node) -> frozenset[str]:
    """Return the unknowns of an expression: its symbols other than e, i and π."""
    names: set[str] = set()

    def visit(part: Node) -> None:
        if part.kind == "symbol" and part.args[0] not in _CONSTANTS:
            names.add(part.args[0])

    walk(node, visit)
    return frozenset(names)


@remembered(4096)
def functions(node: Node) -> frozenset[str]:
    """Return the names of the functions in an expression."""
    names: set[str] = set()

    def visit(part: Node) -> None:
        if part.kind == "call":
            names.add(part.args[0])

    walk(node, visit)
    return frozenset(names)


def is_real_only(node: Node) -> bool:
    """Return True if an expression has a function that is not analytic, such as |x|."""
    return not _REAL_FUNCTIONS.isdisjoint(functions(node))


@remembered(4096)
def rational(node: Node) -> Fraction | None:
    """Return the exact value of an expression; None if it has unknowns or is not known to be rational.

    Raises:
        UndefinedError: The expression divides by zero, or its value is too large.
    """
    try:
        return _rational(node, {})
    except _InexactError:
        return None


@remembered(4096)
def rational_at(node: Node, number: int) -> Fraction | None:
    """Return the exact value at rational point `number`, or None. Raise UndefinedError as `rational` does."""
    point = {name: _rational_coordinate(name, number) for name in symbols(node)}
    try:
        return _rational(node, point)
    except _InexactError:
        return None


def _rational_coordinate(name: str, number: int) -> Fraction:
    one, other = _coordinates(name, number)
    return Fraction(int(one * 9973) + 2, int(other * 97) + 2) * (-1 if number == 1 else 1)


@functools.lru_cache(maxsize=4096)
def _coordinates(name: str, number: int) -> tuple[float, float]:
    """Return two numbers below 1 that are the same in every process."""
    generator = random.Random(f"{name} {number}")
    return generator.random(), generator.random()


def _checked(value: Fraction) -> Fraction:
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if bits > _MOST_BITS:
        raise TooLargeError("too large")
    charge_number(bits)
    return value


def _rational(node: Node, point: Mapping[str, Fraction]) -> Fraction:
    charge(2)
    kind, args = node
    if kind == "number":
        value: Fraction = args[0]
        return value
    if kind == "symbol":
        if args[0] in _CONSTANTS:
            raise _InexactError
        return point[args[0]] if point else _inexact()
    if kind == "sum":
        total = Fraction(0)
        for term in args:
            total = _checked(total + _rational(term, point))
        return total
    if kind == "negative":
        return -_rational(args[0], point)
    if kind == "product":
        result = Fraction(1)
        for factor in args:
            result = _checked(result * _rational(factor, point))
        return result
    if kind == "quotient":
        top, bottom = (_rational(part, point) for part in args)
        if not bottom:
            raise UndefinedError("a division by zero")
        return _checked(top / bottom)
    if kind == "power":
        base = _rational(args[0], point)
        if not base and symbols(args[1]):
            raise UndefinedError("a power of zero")
        return _rational_power(base, _rational(args[1], point))
    if kind in ("quantity", "degrees"):
        return _rational(args[0], point)
    if kind == "percent":
        return _rational(args[0], point) / 100
    if kind == "call":
        return _rational_call(args[0], [_rational(part, point) for part in args[1:]])
    raise _InexactError


def _inexact() -> Fraction:
    raise _InexactError


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        root = _exact_root(base, exponent.denominator)
        if root is None:
            raise _InexactError
        base, exponent = root, Fraction(exponent.numerator)
    if not base:
        if exponent <= 0:
            raise UndefinedError("a power of zero")
        return base
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) > _LARGEST_EXPONENT or bits * abs(exponent) > _MOST_BITS:
        if abs(base) == 1:
            return base if exponent % 2 else abs(base)
        raise TooLargeError("too large")
    charge_number(bits * abs(int(exponent)))
    return Fraction(base ** int(exponent))


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    if value < 0 and degree % 2 == 0:
        return None
    top, bottom = _whole_root(abs(value.numerator), degree), _whole_root(value.denominator, degree)
    if top is None or bottom is None:
        return None
    return Fraction(top if value >= 0 else -top, bottom)


def _whole_root(number: int, degree: int) -> int | None:
    if number < 2:
        return number
    if degree > 64 or number.bit_length() > 4096:
        return None
    low, high = 1, 1 << (number.bit_length() // degree + 1)
    charge(high.bit_length() * 5)
    while low <= high:
        middle = (low + high) // 2
        power = middle**degree
        if power == number:
            return middle
        low, high = (middle + 1, high) if power < number else (low, middle - 1)
    return None


def _rational_call(name: str, arguments: Sequence[Fraction]) -> Fraction:
    import math

    first = arguments[0]
    if name == "root" and arguments[1].denominator == 1 and arguments[1] >= 2:
        root = _exact_root(first, int(arguments[1]))
        if root is None:
            raise _InexactError
        return root
    if name == "abs":
        return abs(first)
    if name in ("floor", "ceiling"):
        return Fraction(math.floor(first) if name == "floor" else math.ceil(first))
    if name in ("max", "min"):
        return max(arguments) if name == "max" else min(arguments)
    whole = all(argument.denominator == 1 for argument in arguments)
    if name == "factorial" and whole and first >= 0:
        if first > 5000:
            raise TooLargeError("too large")
        return _checked(Fraction(math.factorial(int(first))))
    if name == "binomial" and whole and 0 <= arguments[1] <= first:
        if first > 5000:
            raise TooLargeError("too large")
        return _checked(Fraction(math.comb(int(first), int(arguments[1]))))
    if name in ("gcd", "lcm") and whole:
        result, combine = Fraction(int(first)), math.gcd if name == "gcd" else math.lcm
        for argument in arguments[1:]:
            result = _checked(Fraction(combine(int(result), int(argument))))
        return abs(result)
    raise _InexactError


class Value:
    """A value to forty digits, with the size of the largest term in its sums.

    Attributes:
        number: A number of mpmath.
        scale: Size of the largest term, times what it is multiplied by, which determines the error.
        largest: Largest binary exponent of its parts, of either sign.
    """

    __slots__ = ("largest", "number", "scale")

    def __init__(self, number: Any, scale: Any, largest: int = 0) -> None:
        self.number = number
        self.scale = scale
        self.largest = largest

    def agrees(self, other: "Value") -> bool | None:
        """Return True if both values are equal up to their errors, None if the errors are too large to say."""
        error = max(self.error, other.error)
        if abs(self.number - other.number) > error:
            return False
        if error <= _LARGEST_ERROR * max(abs(self.number), abs(other.number)):
            return True
        if error > _LARGEST_ERROR:
            return None
        # A small number that is known exactly is not what remains of large terms.
        return bool(abs(self.number) <= self.error and abs(other.number) <= other.error)

    @property
    def error(self) -> Any:
        """The largest error of the value."""
        return max(self.scale, abs(self.number)) * _RELATIVE_ERROR

    def is_zero(self) -> bool | None:
        """Return True if the value is 0 up to its error, None if the error is too large to say."""
        return self.agrees(Value(_context().mpf(0), _context().mpf(0)))


@functools.lru_cache(maxsize=1)
def _context() -> Any:
    import mpmath

    context = mpmath.mp.clone()
    context.dps = _DIGITS
    return context


@remembered(8192)
def value_at(node: Node, number: int, real: bool) -> Value | None:
    """Return the value at a random point, or None if there is none.

    The point depends only on `number` and the names of the unknowns. If `real`, coordinates and functions are real: a
    root or logarithm of a negative number has no value.
    """
    evaluator = _Evaluator(number, real)
    try:
        value = evaluator.value(node)
        if real and _imaginary(value):
            return None
        if not _context().isfinite(value):
            return None
    except _NO_VALUE:
        return None
    return Value(value, evaluator.scale, evaluator.largest)


def _imaginary(value: Any) -> bool:
    return isinstance(value, _context().mpc) and value.imag != 0


class _Evaluator:
    def __init__(self, number: int, real: bool) -> None:
        self.number = number
        self.real = real
        self.context = _context()
        self.scale = self.context.mpf(0)
        self.largest = 0
        self.degree = self.context.mpf(1)  # value of 1°: π/180 within an angle, else 1

    def value(self, node: Node) -> Any:
        value = self.compute(node)
        if size := abs(value):
            magnitude = abs(self.context.mag(size))
            if magnitude > _LARGEST_LOGARITHM:
                raise UndefinedError("too large")
            self.largest = max(self.largest, magnitude)
            charge(magnitude // 25)  # functions of large numbers take longer
        return value

    def measured(self, node: Node) -> tuple[Any, Any]:
        """Return the value of a part, and its scale alone."""
        outside, self.scale = self.scale, self.context.mpf(0)
        value = self.value(node)
        scale = max(self.scale, abs(value))
        self.scale = outside
        return value, scale

    def compute(self, node: Node) -> Any:
        charge(10)
        kind, args = node
        context = self.context
        if kind == "number":
            return context.mpf(args[0].numerator) / args[0].denominator
        if kind == "symbol":
            return self.symbol(args[0])
        if kind == "sum":
            terms = [self.value(term) for term in args]
            self.scale = max(self.scale, *(abs(term) for term in terms))
            return context.fsum(terms)
        if kind == "negative":
            return -self.value(args[0])
        if kind == "product":
            result, scale = self.measured(args[0])
            for factor in args[1:]:
                value, its_scale = self.measured(factor)
                result, scale = result * value, max(scale * abs(value), its_scale * abs(result))
            self.scale = max(self.scale, scale)
            return result
        if kind == "quotient":
            (top, top_scale), (bottom, bottom_scale) = map(self.measured, args)
            result = top / bottom
            self.scale = max(self.scale, top_scale / abs(bottom), bottom_scale * abs(result / bottom))
            return result
        if kind == "power":
            base, scale = self.measured(args[0])
            return self.scaled(base, scale, self.power(base, args[1]))
        if kind == "quantity":
            return self.value(args[0])
        if kind == "degrees":
            return self.value(args[0]) * self.degree
        if kind == "percent":
            return self.value(args[0]) / 100
        if kind == "call":
            return self.call(args[0], args[1:])
        raise UndefinedError(kind)

    def scaled(self, base: Any, scale: Any, result: Any) -> Any:
        """Return a power or root of a base, whose relative error is that of the base."""
        self.scale = max(self.scale, scale * abs(result / base) if base else scale)
        return result

    def symbol(self, name: str) -> Any:
        context = self.context
        if name == "e":
            return context.e()
        if name == "pi":
            return context.pi()
        if name == "i":
            return context.j
        one, other = _coordinates(name, self.number)
        if not self.real:
            return context.mpc(one - 1 if self.number == 1 else one + 0.125, other - 0.375)
        # Sizes below 1, around 3 and around 20; positive at even points, negative at point 1, of either sign at others.
        size = context.mpf(one) * (0.875, 5, 40)[self.number // 2 % 3] + 0.0625
        is_negative = self.number % 2 and (self.number == 1 or other > 0.5)
        return -size if is_negative else size

    def power(self, base: Any, exponent_node: Node) -> Any:
        charge(50)
        if base == self.context.e():
            return self.context.exp(self.value(exponent_node))
        exponent = rational(exponent_node)
        if exponent is not None and exponent.denominator == 1 and abs(exponent) <= _LARGEST_EXPONENT:
            return base ** int(exponent)
        if exponent is not None and exponent.denominator != 1:
            if max(abs(exponent.numerator), exponent.denominator) > _LARGEST_EXPONENT:
                raise UndefinedError("too large")
            return self.root(base, exponent.denominator) ** exponent.numerator
        value = self.value(exponent_node)
        if base == 0:
            raise UndefinedError("a power of zero")
        if self.real and (_imaginary(base) or self.context.re(base) < 0):
            raise UndefinedError("a power of a negative number")
        if abs(value) * max(1, abs(self.context.mag(abs(base)))) > _LARGEST_LOGARITHM:
            raise UndefinedError("too large")
        return self.context.power(base, value)

    def root(self, base: Any, degree: int) -> Any:
        if not _imaginary(base) and self.context.re(base) < 0:
            base = self.context.re(base)
            if degree % 2:
                return -self.context.root(-base, degree)
            if self.real:
                raise UndefinedError("a root of a negative number")
        return self.context.root(base, degree)

    def call(self, name: str, args: tuple[Node, ...]) -> Any:
        charge(100)
        context = self.context
        if name == "root":
            degree = rational(args[1])
            if degree is None or degree.denominator != 1 or not 2 <= degree <= 1000:
                return self.value(args[0]) ** (1 / self.value(args[1]))
            base, scale = self.measured(args[0])
            return self.scaled(base, scale, self.root(base, int(degree)))
        if name in ("ln", "log"):
            return self.logarithm(name, args)
        values = [self.angle(args[0])] if name in _TRIGONOMETRIC else [self.value(argument) for argument in args]
        if self.real and any(map(_imaginary, values)):
            raise UndefinedError("an imaginary argument")
        if self.real and name in ("arcsin", "arccos") and abs(values[0]) > 1:
            raise UndefinedError("an argument above 1")
        if name in ("max", "min"):
            if any(map(_imaginary, values)):
                raise UndefinedError("an imaginary argument")
            return (max if name == "max" else min)(map(context.re, values))
        if name in ("binomial", "factorial") and max(map(abs, values)) > _LARGEST_OF_GAMMA:
            raise UndefinedError("too large")
        if name == "binomial":
            return context.binomial(*values)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise UndefinedError(name)
        return getattr(context, function)(values[0])

    def angle(self, node: Node) -> Any:
        """Return the argument of a trigonometric function in radians."""
        outside, self.degree = self.degree, self.context.pi() / 180
        value = self.value(node)
        self.degree = outside
        return value

    def logarithm(self, name: str, args: tuple[Node, ...]) -> Any:
        """Return a logarithm, whose error is the relative error of its arguments."""
        measured = [self.measured(argument) for argument in args]
        values = [value for value, _ in measured]
        if any(value == 0 for value in values):
            raise UndefinedError("the logarithm of zero")
        if self.real and any(_imaginary(value) or value < 0 for value in values):
            raise UndefinedError("the logarithm of a negative number")
        self.scale = max(self.scale, *(scale / abs(value) for value, scale in measured))
        logarithm = self.context.log(values[0])
        if len(values) == 2:
            return logarithm / self.context.log(values[1])
        return logarithm if name == "ln" else logarithm / self.context.log(10)


_TRIGONOMETRIC = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_FUNCTIONS = {
    **{name: name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "factorial")},
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
    "abs": "fabs",
    "floor": "floor",
    "ceiling": "ceil",
    "sgn": "sign",
    "arg": "arg",
    "Re": "re",
    "Im": "im",
}


def are_equal(one: Node, other: Node) -> bool | None:
    """Return True if two expressions are equal everywhere, False if not, None if this cannot be decided."""
    if one == other:
        return True
    try:
        exact = rational(one), rational(other)
        if exact[0] is not None and exact[1] is not None:
            return exact[0] == exact[1]
    except UndefinedError:
        return None
    unknowns = symbols(one) | symbols(other)
    if unknowns and (decided := _compare_rationally(one, other)) is not None:
        return decided
    if not unknowns:
        real = is_real_only(one) or is_real_only(other)
        return _compare_at(one, other, [0], real=real) and _agree_in_all_digits(one, other, real)
    if not (is_real_only(one) or is_real_only(other)):
        decided = _compare_at(one, other, range(3), real=False)
        if decided:
            return True
    return _compare_at(one, other, range(REAL_POINTS), real=True)


def has_values(node: Node, beside: Node) -> bool:
    """Return True if an expression has a known value at every random point at which another one has.

    `are_equal` skips points without a value. So two verdicts about an expression may look at different points.
    """
    if not symbols(node):
        return True
    for number in range(5):
        if _is_defined(beside, number) and not _is_defined(node, number):
            return False
    for real, points in ((False, 3), (True, REAL_POINTS)):
        if real or not (is_real_only(node) or is_real_only(beside)):
            for number in range(points):
                value = value_at(node, number, real)
                if value_at(beside, number, real) is not None and (value is None or value.is_zero() is None):
                    return False
    return True


def _is_defined(node: Node, number: int) -> bool:
    try:
        rational_at(node, number)
    except UndefinedError:
        return False
    return True


def _compare_rationally(one: Node, other: Node) -> bool | None:
    agreed = 0
    for number in range(5):
        try:
            values = rational_at(one, number), rational_at(other, number)
        except UndefinedError:
            continue
        if values[0] is None or values[1] is None:
            return None
        if values[0] != values[1]:
            return False
        agreed += 1
        if agreed == 3:
            return True
    return None


def _compare_at(one: Node, other: Node, points: Sequence[int], *, real: bool) -> bool | None:
    agreed = 0
    for number in points:
        values = value_at(one, number, real), value_at(other, number, real)
        if values[0] is None or values[1] is None:
            continue
        agrees = values[0].agrees(values[1])
        if agrees is False:
            return False
        agreed += agrees is True
    return True if agreed >= min(2, len(points)) else None


def _agree_in_all_digits(one: Node, other: Node, real: bool) -> bool | None:
    """Compare two numbers of which forty digits agree once more if they have huge or tiny parts: `√(7^2024 + 1)`."""
    values = value_at(one, 0, real), value_at(other, 0, real)
    largest = max(value.largest for value in values if value is not None)
    if largest < _LARGEST_OF_FORTY_DIGITS:
        return True
    digits = _DIGITS + int(largest * 0.7)
    charge(10 * digits)
    evaluators = _Evaluator(0, real), _Evaluator(0, real)
    with _context().workdps(digits):
        try:
            first, second = evaluators[0].value(one), evaluators[1].value(other)
        except _NO_VALUE:
            return None
        size = max(abs(first), abs(second), *(evaluator.scale for evaluator in evaluators))
        return bool(abs(first - second) <= size * _context().mpf(10) ** (_DIGITS // 2 - digits))


def number_of(node: Node) -> Any:
    """Return the real value of an expression without unknowns, as a number of mpmath; None for others."""
    if symbols(node):
        return None
    value = value_at(node, 0, True)
    return None if value is None else _context().re(value.number)
