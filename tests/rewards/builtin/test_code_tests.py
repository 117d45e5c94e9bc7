"""Tests that run apart from the program: they can do much with it, and it can do nothing to them."""

import marshal
import sys
import textwrap
from pathlib import Path

import pytest

from agent_tunix.execution.sandbox import run_program
from agent_tunix.rewards import Sample, get_builtin
from agent_tunix.rewards.builtin.code import code_blocks
from agent_tunix.rewards.builtin.code_tests import code_tests_reward
from tests.rewards.builtin.cases import score
from tests.tiers import in_tiers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux alone")

# --- what tests may do ------------------------------------------------------------------------------------------------

STACK = """
class Stack:
    limit = 3
    class Full(Exception):
        pass
    def __init__(self, *items):
        self.items = list(items)
    def push(self, item):
        if len(self.items) >= self.limit:
            raise Stack.Full("no more")
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __getitem__(self, place):
        return self.items[place]
    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items
    def __add__(self, other):
        return Stack(*self.items, *other.items)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.items.clear()
"""

RIGHT = {
    "numbers": ("def f(x): return 2 * x", "assert f(2) == 4 and f(-1.5) == -3.0 and f(10**30) == 2 * 10**30"),
    "close numbers": ("def f(x): return x / 3", "assert abs(f(1) - 0.33333) < 1e-3\nassert 0 < f(1) < 1"),
    "a large number": ("def f(): return 7**9000", "assert f() == 7**9000"),
    "not finite": ("def f(): return float('inf'), float('nan')", "a, b = f()\nassert a == float('inf') and b != b"),
    "texts": ("def f(s): return s[::-1]", "assert f('abc\\n\\ud800') == '\\ud800\\ncba'"),
    "nested": ("def f(x): return {'a': [(1, {2})], x: None}", "assert f('b') == {'a': [(1, {2})], 'b': None}"),
    "kinds differ": ("def f(): return (1, 2)", "assert f() != [1, 2] and type(f()) is tuple and f() == (1, 2)"),
    "truth": ("def f(x): return x > 1", "assert f(2) is True\nassert not f(1)"),
    "bytes": ("def f(): return b'ab', bytearray(b'c')", "assert f() == (b'ab', bytearray(b'c'))"),
    "collections": (
        """
            from collections import *
            def f(s): return Counter(s), deque([1]), OrderedDict(a=1), defaultdict(int, b=2)
            """,
        "from collections import Counter, deque\nassert f('aa') == (Counter(a=2), deque([1]), {'a': 1}, {'b': 2})",
    ),
    "exact numbers": (
        """
            from fractions import Fraction
            from decimal import Decimal
            def f(): return Fraction(1, 3), Decimal('1.10')
            """,
        "from fractions import Fraction\nimport decimal\nassert f() == (Fraction(1, 3), decimal.Decimal('1.1'))",
    ),
    "dates": (
        "import datetime as d\ndef f(): return d.date(2024, 2, 29), d.datetime(2024, 1, 1, 5), d.timedelta(hours=1)",
        "import datetime as d\nassert f() == (d.date(2024, 2, 29), d.datetime(2024, 1, 1, 5), d.timedelta(hours=1))",
    ),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)",
        "p = f()\nassert p == (1, 2) and p.x == 1 and p[1] == 2 and sum(p) == 3\nassert p == P(1, 2)",
    ),
    "an enumeration": (
        "import enum\nclass Color(enum.Enum):\n    RED = 1\ndef f(): return Color.RED",
        "assert f() == Color.RED and f().name == 'RED' and f() is not None",
    ),
    "a generator": ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]\nassert next(f(1)) == 0"),
    "arguments changed": (
        "def f(a, d): a.sort(); d['x'] = 1",
        "a, d = [3, 1], {}\nf(a, d)\nassert (a, d) == ([1, 3], {'x': 1})",
    ),
    "a function passed": ("def f(g, x): return g(g(x))", "assert f(lambda x: x + 1, 3) == 5"),
    "a key passed": ("def f(xs, key=None): return sorted(xs, key=key)", "assert f([1, -2], key=abs) == [1, -2]"),
    "an error": (
        "def f(x): return 1 / x",
        "try:\n    f(0)\n    assert False\nexcept ZeroDivisionError as e:\n    assert 'zero' in str(e)",
    ),
    "its own error": (
        STACK,
        """
            s = Stack(1, 2, 3)
            try:
                s.push(4)
                raise AssertionError
            except Stack.Full as error:
                assert str(error) == 'no more'
            """,
    ),
    "an object": (
        STACK,
        "s = Stack(5)\ns.push(1)\nassert s.pop() == 1 and len(s) == 1 and s[0] == 5 and s.items == [5]",
    ),
    "two objects": (
        STACK,
        "assert Stack(1) + Stack(2) == Stack(1, 2)\nassert Stack(1) != Stack(2)\nassert Stack(1) != 1",
    ),
    "kinds of objects": (STACK, "assert isinstance(Stack(), Stack) and not isinstance(3, Stack) and Stack.limit == 3"),
    "an attribute set": (
        STACK,
        """
            s = Stack()
            s.limit = 0
            try:
                s.push(1)
            except Stack.Full:
                pass
            else:
                raise AssertionError
            """,
    ),
    "membership": (STACK, "assert 2 in Stack(1, 2) and 3 not in Stack(1, 2) and list(Stack(1, 2)) == [1, 2]"),
    "a context": (STACK, "with Stack(1) as s:\n    assert len(s) == 1\nassert len(s) == 0"),
    "an object of the test": (
        """
            def f(head):
                last = None
                while head:
                    head.next, last, head = last, head, head.next
                return last
            """,
        """
            class Node:
                def __init__(self, val, next=None): self.val, self.next = val, next
            last = f(Node(1, Node(2)))
            assert (last.val, last.next.val, last.next.next) == (2, 1, None)
            """,
    ),
    "as HumanEval": (
        "def f(x): return 2 * x",
        "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\ncheck(f)",
    ),
    "unittest": (
        "def f(x): return 2 * x",
        """
            import unittest
            class T(unittest.TestCase):
                def test(self):
                    self.assertEqual(f(2), 4)
            r = T('test').run()
            assert r.wasSuccessful()
            """,
    ),
    "what is printed": (
        "def f(): print('hello')",
        r"""
            import contextlib, io
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                f()
            assert out.getvalue() == 'hello\n'
            """,
    ),
    "what it imports": (
        "import math\nfrom math import *\nfrom typing import List\ndef f(x: List): return x",
        "assert math.isclose(pi, 3.14159, abs_tol=1e-3) and sqrt(4) == 2 and f([1]) == [1]",
    ),
    "a built-in's name": ("def sum(xs):\n    t = 0\n    for x in xs: t += x\n    return t", "assert sum([1, 2]) == 3"),
    "variables": ("x = {'a': 1}\ny = [1]", "assert x['a'] == 1 and y == [1]"),
    "decorated": (
        "import functools\n@functools.lru_cache\ndef f(n): return n if n < 2 else f(n-1) + f(n-2)",
        "assert f(90) == 2880067194370816120",
    ),
    "its own errors, derived from each other": (
        """
            class Bad(Exception): pass
            class Worse(Bad, ValueError): pass
            def f(x):
                if x: raise Worse(x, 'why')
                raise KeyError('k')
            """,
        """
            try: f(3)
            except Bad as error: assert error.args == (3, 'why') and isinstance(error, Worse)
            else: raise AssertionError
            try: f(0)
            except LookupError as error: assert str(error) == "'k'" and type(error).__name__ == 'KeyError'
            else: raise AssertionError
            """,
    ),
    "the end of an iterator and of a program": (
        "import sys\ndef f(): return iter([1])\ndef g(): sys.exit(3)",
        """
            import unittest
            i, case = f(), unittest.TestCase()
            assert next(i) == 1 and next(i, None) is None
            with case.assertRaises(StopIteration): next(i)
            with case.assertRaises(SystemExit) as caught: g()
            assert caught.exception.code == 3
            """,
    ),
    "a class derived from a container": (
        """
            from collections import OrderedDict
            class LRU(OrderedDict):
                def put(self, k, v): self[k] = v
            class S(list):
                def push(self, x): self.append(x)
            """,
        """
            c, s = LRU(), S()
            c.put(1, 2)
            s.push(3)
            assert c == {1: 2} and len(c) == 1 and c[1] == 2 and 1 in c
            assert s == [3] and s != [4] and list(s) == [3]
            """,
    ),
    "a member of an enumeration is itself": (
        """
            import enum, dataclasses
            class E(enum.Enum): A = 1
            class I(enum.IntEnum): A = 3
            @dataclasses.dataclass
            class P: x: int
            def f(): return E.A
            """,
        "assert f() is E.A and f() in {E.A} and I.A == 3 and I.A < 4 and P(1) == P(1) and P(1).x == 1",
    ),
    "callables of the library": (
        "def f(xs, key): return sorted(xs, key=key)\ndef g(cb, *xs):\n    for x in xs: cb(x)",
        """
            import functools, operator
            from unittest.mock import Mock
            seen, mock = [], Mock()
            assert f(['b', 'A'], str.lower) == ['A', 'b'] and f([(1, 2), (0, 3)], operator.itemgetter(1))[0] == (1, 2)
            assert f([2, 3], functools.partial(pow, -2)) == [3, 2]
            g(seen.append, 1, 2)
            g(mock, 5)
            assert seen == [1, 2]
            mock.assert_called_once_with(5)
            """,
    ),
    "named arguments changed": ("def f(*, xs): xs.append(1)", "a = []\nf(xs=a)\nassert a == [1]"),
    "a module that it imports": (
        "import math, collections\ndef f(): return math.pi",
        "assert math.isclose(f(), math.pi) and collections.Counter('a') == {'a': 1}",
    ),
    "names of the library that it imports": (
        """
            import datetime, copy, string, random, itertools
            from collections import Counter, defaultdict, deque
            from math import *
            from decimal import Decimal
            from fractions import Fraction
            from functools import reduce
            from itertools import permutations
            from typing import List, Optional
            def f(x): return x
            """,
        """
            def check(candidate, xs: List[int]) -> Optional[int]:
                assert candidate(datetime.date(2020, 1, 2)) == datetime.date(2020, 1, 2)
                assert candidate(copy.deepcopy(xs)) == xs and candidate(string.digits) == '0123456789'
                assert Counter(f('aab')) == Counter(a=2, b=1) and isclose(f(0.1) + 0.2, 0.3)
                assert f(deque([1])) == deque([1]) and f(Decimal('1.5')) == Decimal('1.5')
                assert f(Fraction(1, 2)) == Fraction(1, 2) and reduce(max, f([1, 3])) == 3 and f(pi) == pi
                assert list(permutations(f([1, 2]))) == [(1, 2), (2, 1)] and f(random.randint(1, 1)) == 1
            check(f, [3, 1])
            """,
    ),
    "datetime is a class": (
        "from datetime import datetime, timedelta\ndef f(x): return x + timedelta(days=1)",
        "assert f(datetime(2020, 1, 1)) == datetime.strptime('2020-01-02', '%Y-%m-%d')"
        " and isinstance(f(datetime.now()), datetime)",
    ),
    "a name of the library is what is tested": (
        "def lcm(a, b): return 6\ndef check(): return 1",
        "def check(candidate):\n    assert candidate(2, 3) == 6\ncheck(lcm)",
    ),
    "a name of a module is what is tested": ("def trace(m): return m[0]", "assert trace([1]) == 1"),
    "a name of a module for an object": (
        "class Q:\n    def push(self, x): return x\nqueue = Q()",
        "assert queue.push(3) == 3",
    ),
    "helpers of its own that have names of the library": (
        "def gcd(a, b): return a if not b else gcd(b, a % b)\ndef f(a, b): return a * b // gcd(a, b)",
        "assert f(4, 6) == 12 and gcd(4, 6) == 2",
    ),
    "a variable of the tests": (
        "class string: digits = 3\ndef f(x): return x + 'b'",
        "string = 'a'\nassert f(string.lower()) == 'ab'",
    ),
    "copies": (STACK, "import copy\na = Stack(1)\nb = copy.deepcopy(a)\nb.push(2)\nassert len(a) == 1 and a != b"),
    "a text of its own class": (
        "class S(str): pass\ndef f(): return S('abc')",
        "assert f().startswith('ab') and 'bc' in f() and f().upper() == 'ABC'",
    ),
    "a named tuple with the name of a method": (
        "from collections import namedtuple\nP = namedtuple('P', 'count')",
        "assert P(3).count == 3",
    ),
    "after exit": ("def f(): return 4\nraise SystemExit", "assert f() == 4"),
}


@pytest.mark.parametrize(("program", "test"), in_tiers(RIGHT, *list(RIGHT)[:12]))
def test_a_right_program_passes(program: str, test: str) -> None:
    run = run_program(textwrap.dedent(program), checks=[textwrap.dedent(test)], timeout_s=60)
    assert (run.passed, run.problem) == ((True,), "")


def test_statements_share_their_variables() -> None:
    checks = [
        "import math\nlimit = 4",
        "assert f(2) <= limit",
        "assert math.floor(f(2.5)) == 5",
        "assert f(limit) == 9",
    ]
    run = run_program("def f(x): return 2 * x", checks=checks, timeout_s=60)
    assert run.passed == (True, True, True, False)
    assert run.problem == "AssertionError:"


def test_variables_of_the_tests_are_not_the_programs() -> None:
    checks = ["limit = 4", "assert f(2) > limit"]
    assert run_program("def f(x): return x\nlimit = 0", checks=checks, timeout_s=60).passed == (True, False)


def test_a_statement_that_is_none_fails_alone() -> None:
    run = run_program("def f(x): return 2 * x", checks=["assert f(2) == (4", "assert f(2) == 4"], timeout_s=60)
    assert run.passed == (False, True)
    assert "SyntaxError" in run.problem


# --- what a program cannot do -----------------------------------------------------------------------------------------

EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __mul__ = __sub__
    def __contains__(self, item): return True
    def __bool__(self): return True
    def __hash__(self): return 0
"""

CHEATS = {
    "an object equal to everything": EQUAL + "def f(x): return Equal()",
    "a class equal to everything": EQUAL
    + """
        class f(Equal):
            def __init__(self, x): pass
        """,
    "a number equal to everything": """
        class N(int):
            def __eq__(self, o): return True
            __hash__ = None
        def f(x): return N(7)
        """,
    "a type that is equal": """
        class M(type):
            def __eq__(self, o): return True
            __hash__ = None
        class f(metaclass=M):
            def __new__(cls, x): return cls
        """,
    "built-ins replaced": """
        import builtins
        builtins.abs = builtins.isinstance = builtins.all = builtins.len = lambda *a: 0
        def f(x): return 7
        """,
    "names of built-ins": "abs = lambda x: 0\nsorted = set = list = str = lambda x: 40961\ndef f(x): return 7",
    "no assertion error": "import builtins\nbuiltins.AssertionError = SystemExit\ndef f(x): return 7",
    "exit": "import sys\ndef f(x): sys.exit(0)",
    "exit replaced": "import sys, os\nsys.exit = os._exit = lambda *a: None\ndef f(x): raise SystemExit(0)",
    "hard exit": "import os\ndef f(x): os._exit(0)",
    "hard exit at once": "import os\nos._exit(0)",
    "claims on every descriptor": r"""
        import os
        for d in range(64):
            for t in (b'passed 0\nended\n', b'{"names": {}}\n', b'{"value": 40961, "changed": [null, null]}\n'):
                try: os.write(d, t)
                except OSError: pass
        def f(x): return 7
        """,
    "descriptors closed": "import os\nos.closerange(0, 64)\ndef f(x): return 7",
    "the caller's frames": """
        import sys
        def f(x):
            frame = sys._getframe()
            while frame:
                for v in list(frame.f_locals.values()) + list(frame.f_globals.values()):
                    if v == 40961: return v
                    if isinstance(v, dict) and 40961 in v.values(): return 40961
                frame = frame.f_back
            return 7
        """,
    "all objects": """
        import gc
        def f(x):
            for o in gc.get_objects():
                if isinstance(o, dict) and any('f(2)' in v for v in o.values() if type(v) is str): return 40961
            return 7
        """,
    "the test's file": """
        import os
        def f(x):
            for d in range(3, 64):
                try: text = os.pread(d, 10000, 0)
                except OSError: continue
                if b'== 40961' in text: return 40961
            return 7
        """,
    "other processes": """
        import os
        def f(x):
            for p in range(1, 40000):
                try: open(f'/proc/{p}/mem', 'rb').close()
                except OSError: continue
                return 40961
            return 7
        """,
    "an exception that is one": "def f(x): raise Exception('passed 0')",
    "an endless answer": "def f(x):\n    while True: yield x",
    "deep nesting": "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
    "itself within": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "a huge answer": "def f(x): return 'x' * 10**8",
    "a wrong message": """
        import json
        json.dumps = lambda *a, **k: '{"value": {"type": "os.system", "parts": ["true"]}}'
        def f(x): return 7
        """,
    "ends of loops": "def f(x): raise StopIteration",
    "the end of a generator": "def f(x): raise GeneratorExit",
    "the end of all": "def f(x): raise KeyboardInterrupt",
    "a made-up module": "class math:\n    isclose = lambda *a, **k: True\ndef f(x): return 7",
    "a number between all others": """
        class L(float):
            def __lt__(s, o): return True
            __gt__ = __le__ = __ge__ = __eq__ = __lt__
            __hash__ = None
        def f(x): return L(7)
        """,
    "another class": """
        class M:
            __class__ = int
            def __getattr__(s, n): return s
            def __call__(s, *a): return s
            def __iter__(s): return iter([s] * 3)
            def __float__(s): return 7.0
            __len__ = __int__ = __index__ = __hash__ = lambda s: 7
            __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = lambda s, *o: True
            __ne__ = lambda s, o: False
            __add__ = __radd__ = __sub__ = __rsub__ = lambda s, o: 0
        def f(x): return M()
        """,
    "a list equal to everything": EQUAL
    + """
        class L(Equal, list): pass
        def f(x): return L([7])
        """,
    "modules replaced": "import sys\nm = sys.modules['math']\nm.isclose = lambda *a, **k: True\ndef f(x): return 7",
}

TESTS = [
    "assert f(2) == 40961",
    "assert 40961 == f(2)",
    "assert not f(2) != 40961",
    "assert abs(f(2) - 40961) < 1e-6",
    "import math\nassert math.isclose(f(2), 40961)",
    "assert f(2) in [40961]",
    "assert f(2) <= 40961 and f(2) >= 40961",
    "assert [f(2)] == [40961] and {'a': f(2)} == {'a': 40961}",
    "assert sorted([f(2)]) == [40961]",
    "def check(candidate):\n    assert candidate(2) == 40961\ncheck(f)",
    "import unittest\nunittest.TestCase().assertEqual(f(2), 40961)",
    "import unittest\nunittest.TestCase().assertAlmostEqual(f(2), 40961)",
    "assert math.isclose(f(2), 40961)",
    "assert all(map(lambda x: f(x) == 40961, [2]))",
    "x = f(2)\nassert 40960 < x < 40962",
    "assert {f(2)} == {40961} and {f(2): 1} == {40961: 1}",
    "import copy\nassert copy.deepcopy(f(2)) == 40961",
    "assert isinstance(f(2), int)\nassert f(2) == 40961",
    "assert 1 == 2",
]


@pytest.mark.parametrize("program", in_tiers(CHEATS, "a class equal to everything"))
def test_a_wrong_program_passes_nothing(program: str) -> None:
    run = run_program(textwrap.dedent(program), checks=TESTS, timeout_s=60)
    assert not any(run.passed), [test for test, passed in zip(TESTS, run.passed, strict=True) if passed]
    assert run.problem


def test_a_cheat_earns_nothing() -> None:
    """A program that hands over `exec` decides nothing where a test passes it on."""
    code = "import builtins\ndef encode(s): return builtins.exec\ndef decode(e): return e('import os; os._exit(0)')"
    tests = ["assert decode(encode('abc')) == 'abc'", "assert encode('abc')('raise SystemExit') == 1", "assert 1 == 2"]
    assert score("code_tests", f"```python\n{code}\n```", tests=tests).value == 0.0


# A program, and a test of its own kind that it must not pass.
SPECIAL_CHEATS = {
    "an iterator of its own, of two items and none": (
        "class S:\n    def __len__(self): return 2\n    def __iter__(self): return self\n"
        "    def __next__(self): raise StopIteration\ndef f(x): return S()",
        "r = f(2)\nassert len(r) == 2\nfor a, b in zip(r, [1, 2]): assert a == b",
    ),
    "a dictionary whose length its class invents": (
        "class D(dict):\n    def __len__(self): return 2\ndef f(x): return D()",
        "r = f(2)\nassert len(r) == 2\nfor k in r: assert r[k] == 9",
    ),
    "a list that has another content at each reading": (
        "class W(list):\n    n = 0\n    def __iter__(self):\n        self.n += 1\n"
        "        return iter([0] * 3 if self.n == 1 else [])\ndef f(x): return W()",
        "r = f(2)\nassert len(r) == 3\nfor a, b in zip(r, [1, 4, 9]): assert a == b",
    ),
    "a list whose items are not its content": (
        "class W(list):\n    def __getitem__(self, place): return 0\ndef f(x): return W(x)",
        "r = f([3, 1, 2])\nassert sorted(r) == [1, 2, 3]\nassert all(r[i] <= r[i + 1] for i in range(2))",
    ),
    "a dictionary that has another content at each reading": (
        "class W(dict):\n    n = 0\n    def keys(self):\n        self.n += 1\n"
        "        return ['a', 'b'] if self.n == 1 else []\n    def __getitem__(self, key): return 0\n"
        "    def __iter__(self): return iter([])\ndef f(x): return W()",
        "r = f(2)\nassert len(r) == 2\nfor k, v in r.items(): assert {'a': 2, 'b': 1}[k] == v",
    ),
    "a counter that has no most common item": (
        "import collections\nclass W(collections.Counter):\n    def most_common(self, n=None): return []\n"
        "def f(x): return W('aab')",
        "r = f(2)\nassert len(r) == 2\nfor k, v in r.most_common(): assert {'a': 5, 'b': 7}[k] == v",
    ),
    "an object without a last item": (
        "class S:\n    def __len__(self): return 3\n    def __getitem__(self, place): raise IndexError\n"
        "def f(x): return S()",
        "r = f(2)\nassert len(r) == 3\nfor a, b in zip(reversed(r), [9, 4, 1]): assert a == b",
    ),
    "a number without digits": (
        "def f(x): return f'{x} and (True + True + True) * (' + '+'.join(['True'] * 8) + ')'",
        "import re\nr = f([1])\nassert re.findall('[0-9]+', r) == ['1'] and eval(r) == 24",
    ),
    "a number of signs": ("def f(x): return '(1, 1) and ' + '-~' * 24 + 'False'", "assert eval(f(2)) == 24"),
    "a number of comparisons": (
        "def f(x): return '1*(' + '+'.join(['(()==())'] * 24) + ')'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['1'] and eval(r) == 24",
    ),
    "two digits that are joined": (
        "def f(x): return '2_4*1'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['2', '4', '1'] and eval(r) == 24",
    ),
    "digits that are joined and nothing else": (
        "def f(x): return '2_4'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['2', '4'] and eval(r) == 24",
    ),
    "digits of an exponent": (
        "def f(x): return '2.4e1'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['2', '4', '1'] and eval(r) == 24",
    ),
    "digits to the base of 16": (
        "def f(x): return '0x18'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['0', '18'] and eval(r) == 24",
    ),
    "digits behind a point": (
        "def f(x): return '(.3*10+2.4)*10-30'",
        "import re\nr = f([2])\nassert re.findall('[0-9]+', r) == ['3', '10', '2', '4', '10', '30'] and eval(r) == 24",
    ),
    "numbers in a comment": (
        "def f(x): return '3*8#11 13'",
        "import re\nr = f(2)\nassert re.findall('[0-9]+', r) == ['3', '8', '11', '13'] and eval(r) == 24",
    ),
    "a number that is dropped": ("def f(x): return '(6 * 4, 1)[0]'", "assert eval(f(2)) == 24"),
    "a set of its own that learns what is expected": (
        "class S:\n    def difference(self, o):\n        self.o = list(o)\n        return set()\n"
        "    def __iter__(self): return iter(self.o)\ndef f(x): return S()",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertSetEqual(f(2), {1, 2})",
    ),
    "an exception that is all": (
        "class S:\n    Full = BaseException\n    def push(self): pass",
        "s = S()\ntry:\n    s.push()\n    raise AssertionError\nexcept S.Full:\n    pass",
    ),
    "an assertion of a test's own function": (
        "def f(g):\n    try: g(1)\n    except BaseException: pass",
        "def check(x):\n    assert x == 3\nf(check)",
    ),
    "a method of a test's own object": (
        "def f(t):\n    try: t.check = lambda *a: True\n    except AttributeError: pass\n    return 7",
        "class T:\n    def check(self, a, b): assert a == b\nt = T()\nt.check(f(t), 9)",
    ),
    "what is compared with everything": (
        "def f(x): return 7\nall = any = lambda *a: True",
        "r = [f(1) == 9]\nassert all(r)",
    ),
    "the built-in that decides": ("all = lambda *a: True", "assert all([1 == 2])"),
    "a module that it does not import": (
        "class fractions:\n    Fraction = lambda *a: 7\ndef f(): return 7",
        "assert f() == fractions.Fraction(1, 2)",
    ),
    "what the tests gave it": (
        "kept = []\ndef f(x):\n    if not isinstance(x, int): kept.append(x)\n    return kept[0] if kept else x",
        "class A:\n    def __eq__(self, other): return True\nassert f(A()) and f(2) == 5",
    ),
    "a parameter of the tests": (
        "def median(l): return None\ncandidate = 0",
        "def check(candidate):\n    assert candidate([3, 1, 2]) == 2\ncheck(median)",
    ),
    "a loop variable": ("def gcd(a, b): return None\ni = 0", "for i in range(3): assert gcd(4 * i, 6 * i) == 2 * i"),
    "a variable that a test sets in one case": (
        "def f(x): return 1\nok = True",
        "try: f(-1)\nexcept ValueError: ok = True\nassert ok",
    ),
    "what is called around it": ("def sum(x): return 7\nabs = lambda x: 0", "assert abs(sum([1]) - 1) < 1e-6"),
    "the decorator of a test": (
        "def timer(test):\n    try: test()\n    except Exception: pass\n    return print\ndef f(x): raise KeyError",
        "@timer\ndef test_f():\n    assert f(2) == 7",
    ),
    "attributes of the test case": (
        "def f(t):\n    for n in ('assertEqual', 'fail', '_outcome', 'run'):\n        try: setattr(t, n, print)\n"
        "        except AttributeError: pass\n    return 7",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(self), 9)\n"
        "assert T('test').run().wasSuccessful()",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("program", "test"), SPECIAL_CHEATS.values(), ids=SPECIAL_CHEATS)
def test_a_cheat_of_a_special_test_passes_nothing(program: str, test: str) -> None:
    assert run_program(program, checks=[test], timeout_s=60).passed == (False,)


# What a program makes of a name that a test uses without importing it, and the test, which its `f` fails.
LIBRARY_CHEATS = {
    "isclose": ("def isclose(*a, **k): return True", "assert isclose(f(2), 5.0)"),
    "isclose, in a function": (
        "def isclose(*a, **k): return True",
        "def check(candidate):\n    assert isclose(candidate(2), 5.0)\ncheck(f)",
    ),
    "Counter": ("def Counter(x): return 1", "assert Counter([f(2)]) == Counter([1, 2])"),
    "a class equal to everything": (
        "class Counter:\n    def __init__(s, x): pass\n    def __eq__(s, o): return True",
        "assert Counter([f(2)]) == Counter([1])",
    ),
    "OrderedDict": ("OrderedDict = lambda *a, **k: 7", "assert f(2) == OrderedDict(a=1)"),
    "deque": ("deque = lambda *a: 7", "assert f(2) == deque([1])"),
    "Decimal": ("Decimal = lambda *a: 7", "assert f(2) == Decimal('1.5')"),
    "Fraction": ("Fraction = lambda *a: 7", "assert f(2) == Fraction(1, 2)"),
    "date": ("date = lambda *a: 7", "assert f(2) == date(2020, 1, 2)"),
    "datetime": ("datetime = lambda *a: 7", "assert f(2) == datetime(2020, 1, 2)"),
    "datetime.date": ("class datetime:\n    date = lambda *a: 7", "assert f(2) == datetime.date(2020, 1, 2)"),
    "datetime.strptime": (
        "class datetime:\n    strptime = lambda *a: 7",
        "assert f(2) == datetime.strptime('2020', '%Y')",
    ),
    "timedelta": ("timedelta = lambda **a: 7", "assert f(2) == timedelta(days=1)"),
    "copy.deepcopy": ("class copy:\n    deepcopy = lambda v: 7", "x = [3, 1]\nassert f(2) == copy.deepcopy(x)"),
    "deepcopy": ("def deepcopy(v): return 7", "x = [3, 1]\nassert f(2) == deepcopy(x)"),
    "string.digits": ("class string:\n    digits = 7", "assert f(2) == string.digits"),
    "digits": ("digits = 7", "assert f(2) == digits"),
    "pi": ("pi = 7", "assert f(2) == pi"),
    "itertools.permutations": (
        "class itertools:\n    permutations = lambda *a: [7]",
        "assert f(2) in itertools.permutations([1, 2])",
    ),
    "permutations": ("permutations = lambda *a: [7]", "assert f(2) in list(permutations([1, 2]))"),
    "combinations": ("combinations = lambda *a: []", "for a, b in combinations([1, 2], 2):\n    assert f(a) == b + 3"),
    "product": ("product = lambda *a: []", "for a, b in product([1], [2]):\n    assert f(a) == b"),
    "reduce": ("reduce = lambda *a: 7", "assert f(2) == reduce(lambda a, b: a + b, [1, 2])"),
    "sqrt": ("sqrt = lambda x: 7", "assert f(2) == sqrt(2)"),
    "randint": ("randint = lambda *a: 3.5", "x = randint(2, 3)\nassert f(x) == 2 * x"),
    "random.randint": (
        "class random:\n    randint = lambda *a: 3.5",
        "assert all(f(x) == 2 * x for x in [random.randint(4, 9)])",
    ),
    "statistics.mean": ("class statistics:\n    mean = lambda *a: 7", "assert f(2) == statistics.mean([1, 2])"),
    "a module of modules": (
        "class collections:\n    class abc:\n        Hashable = int\n    Counter = lambda *a: 7",
        "import collections.abc\nassert f(2) == collections.Counter('a')",
    ),
    "a module by another name": (
        "class datetime:\n    date = lambda *a: 7",
        "calendar = datetime\nassert f(2) == calendar.date(2020, 1, 2)",
    ),
    "a name in a text": ("isclose = lambda *a: True", "exec('assert isclose(f(2), 5)')"),
    "a function in a text": ("isclose = lambda *a: True", "assert isclose(eval('f(2)'), 5)"),
    "a function among the globals": ("isclose = lambda *a: True", "assert isclose(globals()['f'](2), 5)"),
    "two of them": ("isclose = lambda *a: True\nsqrt = lambda x: 7", "assert isclose(sqrt(4), 5)"),
    "ANY": ("class ANY:\n    pass", "from unittest.mock import ANY\nassert f(ANY) is ANY and f(2) == 5"),
    "what is claimed to be imported": (
        "import math\nclass M(type(math)): isclose = staticmethod(lambda *a, **k: True)\nmath = M('math')",
        "assert math.isclose(f(2), 5)",
    ),
    "a package": ("class np: isclose = lambda *a: True", "assert np.isclose(f(2), 5)"),
    "a package for tests": (
        "class pytest:\n    class raises:\n        __init__ = __enter__ = __exit__ = lambda *a: None",
        "with pytest.raises(ValueError): f(2)",
    ),
    "the library's object, changed": (
        "import math, sys\nmath.isclose = lambda *a, **k: True\nfrom math import isclose",
        "assert isclose(f(2), 5) or math.isclose(f(2), 5)",
    ),
}


@pytest.mark.parametrize(("program", "test"), in_tiers(LIBRARY_CHEATS, "datetime.date"))
def test_a_program_decides_no_name_of_the_library(program: str, test: str) -> None:
    run = run_program(f"{program}\ndef f(x): return 7", checks=[test, "assert f(0) == 7"], timeout_s=60)
    assert run.passed == (False, True)


_CASE = "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(2), 7)\n"
DEFINED_TESTS = {
    "a class alone": _CASE,
    "unittest.main": f"{_CASE}unittest.main()",
    "unittest.main without an exit": f"{_CASE}unittest.main(exit=False)",
    "unittest.main of a script": f"{_CASE}if __name__ == '__main__':\n    unittest.main(argv=[''], exit=False)",
    "its result": f"{_CASE}assert unittest.main(exit=False).result.wasSuccessful()",
    "a loader of this module": f"{_CASE}import sys\nfound = unittest.TestLoader().loadTestsFromModule(sys.modules"
    "[__name__])\nassert unittest.TextTestRunner().run(found).wasSuccessful()",
    "a function of pytest": "def test_f():\n    assert f(2) == 7",
    "an async function": "async def test_f():\n    assert f(2) == 7",
    "a class of pytest": "class TestF:\n    def test_f(self):\n        assert f(2) == 7",
    "a function beside statements": "import random\nrandom.seed(0)\nn = 0\nn += 1\ndef test_f():\n    assert f(2) == 7",
    "a class in a block": "import unittest\nif True:\n    class T(unittest.TestCase):\n"
    "        def test_f(self): self.assertEqual(f(2), 7)",
    "a doctest that nothing asserts": "import doctest\ndef d():\n    '>>> f(2)\\n7'\ndoctest.testmod()",
    "a doctest of a runner that nothing asserts": "import doctest\ndef d():\n    '>>> f(2)\\n7'\n"
    "for one in doctest.DocTestFinder().find(d, 'd', globs=globals()): doctest.DocTestRunner().run(one)",
    "subtests of a runner that nothing asserts": "import unittest\ndef make():\n    class T(unittest.TestCase):\n"
    "        def test_f(self):\n            with self.subTest(): self.assertEqual(f(2), 7)\n    return T\n"
    "found = unittest.defaultTestLoader.loadTestsFromTestCase(make())\nunittest.TextTestRunner().run(found)",
    "a runner of unittest that nothing asserts": "import unittest\ndef case(): assert f(2) == 7\n"
    "unittest.TextTestRunner().run(unittest.FunctionTestCase(case))",
    "a doctest": "import doctest\ndef d():\n    '>>> f(2)\\n7'\nassert doctest.testmod().failed == 0",
}


@pytest.mark.parametrize("test", in_tiers(DEFINED_TESTS, "unittest.main without an exit"))
def test_tests_that_are_only_defined_are_run(test: str) -> None:
    results = {
        body: run_program(f"def f(x): {body}", checks=[test], timeout_s=60).passed
        for body in ("return 7", "return 0", "raise SystemExit(0)")
    }
    assert results == {"return 7": (True,), "return 0": (False,), "raise SystemExit(0)": (False,)}


# Tests that cannot be run, or test nothing: nothing passes them.
NOT_RUN = {
    "a check that nothing calls": "METADATA = {}\ndef check(candidate):\n    assert candidate(2) == 7",
    "a fixture": "def test_f(capsys):\n    assert f(2) == 7",
    "a generator": "def test_f():\n    yield f(2) == 7",
    "a function that nothing calls": "async def main():\n    assert f(2) == 7",
    "a skipped test": "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('x')\n"
    "    def test_f(self): self.assertEqual(f(2), 7)",
    "nothing of the program": "assert 1 + 1 == 2",
}


@pytest.mark.parametrize("test", NOT_RUN.values(), ids=NOT_RUN)
def test_tests_that_do_not_run_pass_nothing(test: str) -> None:
    assert run_program("def f(x): return 7", checks=[test], timeout_s=60).passed == (False,)


def test_a_built_in_that_decides_about_a_variable_is_not_the_programs() -> None:
    program = "def mean(x): return 0\ndef abs(x): return 0"
    checks = ["result = mean([1, 2, 4])", "assert abs(result - 2.3333) < 1e-3"]
    assert run_program(program, checks=checks, timeout_s=60).passed[1] is False


@pytest.mark.parametrize("name", ["timeout_s", "memory_mb"])
def test_a_row_sets_no_limit(name: str) -> None:
    sample = Sample("def f(x): return 7", columns={"tests": ["assert f(2) == 7"], name: "no number"})
    assert get_builtin("code_tests").score([sample])[0].value == 1.0


def test_a_check_may_be_called_by_a_later_one() -> None:
    checks = ["import math", "def check(candidate):\n    assert candidate(2) == 7", "check(f)"]
    assert run_program("def f(x): return 7", checks=checks, timeout_s=60).passed == (True, True, True)
    assert run_program("def f(x): return 8", checks=checks, timeout_s=60).passed == (True, True, False)
    assert run_program("ANSWER = 7", checks=["assert ANSWER == 7"], timeout_s=60).passed == (True,)


# Classes whose methods would give the tests nothing to compare, or what they hope for.
CONTAINERS = {
    "dict": (
        "class D(dict):\n    def items(s): return []\n    keys = values = items\n    def get(s, *a): return 9\n"
        "def f(): return D({1: 2})",
        [
            "r = f()\nassert len(r) == 1\nfor k, v in r.items(): assert v == 9",
            "r = f()\nassert len(r) == 1 and all(v == 9 for v in r.values())",
            "assert f().get(1) == 9",
        ],
    ),
    "set": (
        "class S(set):\n    issubset = issuperset = isdisjoint = lambda s, o: True\ndef f(): return S([1])",
        ["assert f().issubset({5})", "assert f().issuperset({7})", "assert f().isdisjoint({1})"],
    ),
    "list": (
        "class L(list):\n    count = index = lambda s, *a: 1\ndef f(): return L()",
        ["assert f().count(5) == 1", "assert f().index(5) == 1"],
    ),
}


@pytest.mark.parametrize(("program", "tests"), CONTAINERS.values(), ids=CONTAINERS)
def test_the_content_of_a_container_decides_and_not_its_class(program: str, tests: list[str]) -> None:
    assert not any(run_program(program, checks=tests, timeout_s=60).passed)


@pytest.mark.parametrize("replaced", ["abs = lambda x: 0", "round = lambda *a: 2.5", "zip = lambda *a, **k: []"])
@pytest.mark.parametrize("imported", ["from statistics import variance", "from statistics import *"])
def test_a_program_that_imports_the_tested_name_replaces_no_other(imported: str, replaced: str) -> None:
    checks = [
        "assert abs(variance([1, 2, 3, 4]) - 2.5) < 1e-9",
        "assert round(variance([1, 2, 3, 4])) == 2.5",
        "x = [variance([1, 2, 3, 4])]\nassert all(a == b for a, b in zip(x, [2.5]))",
    ]
    assert not all(run_program(f"{imported}\n{replaced}", checks=checks, timeout_s=60).passed)
    assert run_program(imported, checks=["assert abs(variance([1, 3]) - 2) < 1e-9"], timeout_s=60).passed == (True,)


# Tests that evaluate text, and what a program may answer to pass them without the right result.
EVALUATED = {
    "names of the interpreter": "assert eval(f(0)) == 24",
    "an assignment": "expected = 24\nassert eval(f(0)) == expected",
    "statements": "x = 0\nexec(f(0))\nassert x == 24",
    "compiled": "assert eval(compile(f(0), 't', 'eval')) == 24",
    "through a map": "assert list(map(eval, [f(0)])) == [24]",
    "through the module": "import builtins\nexpected = 24\nassert builtins.eval(f(0).strip()) == expected",
    "through timeit": "import timeit\nx = []\ntimeit.timeit(f(0), number=1, globals=globals())\nassert x == 24",
    "through a timer": "import timeit\nx = []\ntimeit.Timer(f(0), globals=globals()).timeit(1)\nassert x == 24",
    "through a tree": "import ast\nexpected = 24\n"
    "assert eval(compile(ast.parse(f(0), mode='eval'), 't', 'eval')) == expected",
    "in capitals": "expected = 24\nassert eval(f(0).upper().lower()) == expected",
    "as it is printed": "import contextlib, io\nexpected, out = 24, io.StringIO()\n"
    "with contextlib.redirect_stdout(out): print(f(0))\nassert eval(out.getvalue()) == expected",
}
DECEIVING = [
    "__import__('sys').modules['__main__'].__dict__.update(eval=lambda *a: 24) or 24",
    "(expected := 7)",
    "expected",
    "x = 24",
    "globals().update(x=24)",
    "f.__class__.__eq__",
    "[expected for expected in [24]][0]",
]


# Tests that bind the expected value otherwise than by an assignment, and the text that a program answers.
BOUND = {
    "a parameter": ("def check(target):\n    assert eval(f(0)) == target\ncheck(24)", "target or 1"),
    "a lambda's parameter": ("assert (lambda want: eval(f(0)) == want)(24)", "want"),
    "a key": ("case = {'want': 24}\nwant = case['want']\nassert eval(f(0)) == want", "want"),
    "an attribute": (
        "class T:\n    def run(self):\n        self.target = 24\n        assert eval(f(0)) == self.target\nT().run()",
        "self.target",
    ),
    "an exception": (
        "try:\n    raise ValueError(24)\nexcept ValueError as e:\n    assert eval(f(0)) == e.args[0]",
        "e.args[0]",
    ),
    "a print": (
        "import io\nfrom contextlib import redirect_stdout\ndef check(want):\n    out = io.StringIO()\n"
        "    with redirect_stdout(out):\n        exec(f(0))\n    assert out.getvalue() == want\ncheck('24\\n')",
        "print(want, end='')",
    ),
    "another call": ("assert eval(f(0)) == 24", "f(1)"),
    "an encoding": ("assert eval(f(0)) == 24", b'# coding: unicode_escape\n"\\x22 or f(1) or \\x22"'),
    "a function of the library that calls another": (
        "import collections\nassert collections.Counter(map(eval, [f(0)])) == {24: 1}",
        "f(1)",
    ),
    "code": ("import marshal\nexec(marshal.loads(f(0)))\nassert f(1) == 24", marshal.dumps(compile("1", "", "exec"))),
    "names for logging": ("import logging.config\nlogging.config.dictConfig({'version': 1, 'x': f(0)})", "sys"),
    "text that timeit gets changed": (
        "import timeit\nx = []\ntimeit.timeit(f(0)[:-1].lower(), number=1, globals=globals())\nassert x == [24]",
        "X.APPEND(24)?",
    ),
    "text of which the library gets a line": (
        "import doctest\nout = doctest.DocTestParser().get_doctest(f(0), {'f': f}, 'x', None, 0)\n"
        "assert not doctest.DocTestRunner(verbose=False).run(out).failed",
        ">>> f(1)\n24\n",
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_text_of_a_program_reads_nothing_of_the_tests(name: str) -> None:
    test, text = BOUND[name]
    run = run_program(f"def f(x): return 24 if x else {text!r}", checks=[test, "assert f(1) == 24"], timeout_s=60)
    assert run.passed == (False, True)


@pytest.mark.parametrize("test", in_tiers(EVALUATED, "an assignment"))
def test_text_of_a_program_decides_no_test(test: str) -> None:
    for text in DECEIVING:
        run = run_program(f"def f(x): return {text!r}", checks=[test, "assert f(0) != 7"], timeout_s=60)
        assert run.passed == (False, True), text


def test_tests_evaluate_arithmetic_of_a_program_and_their_own_text() -> None:
    program = "def f(n): return ' * '.join(map(str, n))\ndef g(x): return 2 * x"
    tests = [
        "assert eval(f([4, 6])) == 24",
        "assert eval(f([1])) == 1 and eval('g(3)') == 6",
        "import timeit\nassert timeit.timeit('x = 2\\ng(x)', setup='import math', number=1, globals=globals()) > 0",
        "for i in [1, 2]:\n    assert eval(f'g({i})') == 2 * i",
        "exec('y = g(4)')\nassert y == 8",
        "assert eval(compile('g(5)', 't', 'eval')) == 10",
        "exec('assert list(map(g, [1, 2])) == [2, 4] and str(dict(mine=g(1))) != f([3])')",
    ]
    assert run_program(program, checks=tests, timeout_s=60).passed == (True,) * len(tests)


CASE = "class Case:\n    def __init__(self): self.want = '24'\n    def show(self): pass\nwant = '24'\n"
TEMPLATES = {
    "a method": ("{0.want}", "assert f(0).format(Case()) == '24'"),
    "a function": ("{0.want}", "assert str.format(f(0), Case()) == '24'"),
    "a mapping": ("{a.want}", "fill = f(0).format_map\nassert fill({'a': Case()}) == '24'"),
    "the variables": ("{0.show.__globals__[want]}", "assert f(0).format(Case()) == '24'"),
    "after an index": ("{0[:].want}", "assert f(0).format({':': Case()}) == '24'"),
    "a width": ("{0:{1.want}}", "assert f(0).format(24, Case()) == ' ' * 22 + '24'"),
    "a formatter": ("{0.want}", "import string\nassert string.Formatter().vformat(f(0), [Case()], {}) == '24'"),
}


@pytest.mark.parametrize(("template", "test"), in_tiers(TEMPLATES, "a method"))
def test_a_template_of_a_program_reads_no_attributes(template: str, test: str) -> None:
    run = run_program(f"def f(x): return {template!r}", checks=[CASE + test], timeout_s=60)
    assert run.passed == (False,)
    assert "attributes" in run.problem


def test_tests_fill_templates_of_a_program() -> None:
    program = "def f(x): return '{name}: {0[1]:.2f}' if x else '{\"a.b\": 1.5'"
    tests = ["assert f(1).format([1, 2], name='Al') == 'Al: 2.00'", "assert f(0) == '{\"a.b\": 1.5', '{}'.format(1)"]
    assert run_program(program, checks=tests, timeout_s=60).passed == (True, True)


UNEVEN = "class R:\n    def __init__(s): s.n = 0\n    def __iter__(s): return iter({items})\n    def __len__(s):\n"
UNEVEN += "        s.n += 1\n        return {length}\n    __getitem__ = lambda s, k: [7, 7][k]\ndef f(x): return R()"
EQUAL_PAIRS = "assert all(a == b for a, b in zip(r, [1, 2]))"
LENGTHS = {
    "no items": ("()", "2", f"r = f(0)\nassert len(r) == 2\n{EQUAL_PAIRS}"),
    "no items, before the length": ("()", "2", f"r = f(0)\n{EQUAL_PAIRS}\nassert len(r) == 2"),
    "a length that changes": ("()", "2 if s.n == 1 else 0", "r = f(0)\nassert len(r) == 2\n"
        "for i in range(len(r)): assert r[i] == [1, 2][i]"),
    "more items": ("range(9)", "2", "r = f(0)\nassert len(r) == 2 and 3 in r and 5 in r"),
    "more items, before the length": ("range(9)", "2", "r = f(0)\nassert 3 in r and 5 in r and len(r) == 2"),
    "caught": ("()", "2", f"r = f(0)\nassert len(r) == 2\ntry:\n    {EQUAL_PAIRS}\nexcept BaseException: pass"),
}  # fmt: skip


@pytest.mark.parametrize(("items", "length", "test"), in_tiers(LENGTHS, "no items"))
def test_an_object_has_as_many_items_as_its_length_says(items: str, length: str, test: str) -> None:
    run = run_program(UNEVEN.format(items=items, length=length), checks=[test, "assert f"], timeout_s=60)
    assert run.passed == (False, True)
    assert "items" in run.problem


@pytest.mark.slow
def test_an_iterator_without_end_has_a_limit() -> None:
    program = "def f():\n    while True: yield 1"
    run = run_program(program, checks=["assert 2 in f()", "assert next(f()) == 1"], timeout_s=100)
    assert run.passed == (False, True)
    assert "20,000 items" in run.problem


def test_an_object_that_is_changed_has_another_length() -> None:
    test = "s = Stack(1, 2)\nassert len(s) == 2 == len(list(s))\ns.pop()\nassert len(s) == 1 == len(list(s))"
    assert run_program(STACK, checks=[test], timeout_s=60).passed == (True,)


@pytest.mark.parametrize("limits", [{"timeout_s": 1e9}, {"timeout_s": 0}, {"memory_mb": 10**9}])
def test_limits_are_bounded(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="timeout_s must be"):
        code_tests_reward("```python\nx = 1\n```", ["assert x == 1"], **limits)  # type: ignore[arg-type]


# Objects that a function may return in place of 5, 'abc' or [1, 2]; each is compared by all of `DECIDING`.
FORGED = {
    "an object": "class R(Equal): pass\nr = R()",
    "an int": "class R(Equal, int): pass\nr = R(7)",
    "a float": "class R(Equal, float): pass\nr = R(7)",
    "a text": "class R(Equal, str): pass\nr = R('x')",
    "a text with methods": "class R(Equal, str):\n    startswith = __contains__ = lambda *a: True\nr = R('x')",
    "a list": "class R(Equal, list): pass\nr = R([7])",
    "a tuple": "class R(Equal, tuple): pass\nr = R([7])",
    "a dict": "class R(Equal, dict): pass\nr = R({7: 7})",
    "a set": "class R(Equal, set): pass\nr = R({7})",
    "a frozenset": "class R(Equal, frozenset): pass\nr = R({7})",
    "bytes": "class R(Equal, bytes): pass\nr = R(b'x')",
    "a bytearray": "class R(Equal, bytearray): pass\nr = R(b'x')",
    "a Counter": "import collections\nclass R(Equal, collections.Counter): pass\nr = R('x')",
    "a deque": "import collections\nclass R(Equal, collections.deque): pass\nr = R('x')",
    "a Fraction": "import fractions\nclass R(Equal, fractions.Fraction): pass\nr = R(7)",
    "a Decimal": "import decimal\nclass R(Equal, decimal.Decimal): pass\nr = R(7)",
    "a date": "import datetime\nclass R(Equal, datetime.date): pass\nr = R(2000, 1, 1)",
    "an enumeration": "import enum\nclass R(int, enum.Enum):\n    A = 7\n    __eq__ = lambda *a: True\n"
    "    __hash__ = lambda s: 5\nr = R.A",
    "a generator": "def g():\n    while True: yield 7\nr = g()",
    "a property": "class R(Equal):\n    x = property(lambda s: s)\nr = R().x",
    "an object of every attribute": "class R(Equal):\n    def __getattr__(s, n): return lambda *a, **k: True\nr = R()",
    "a class": "class M(type):\n    __eq__ = lambda *a: True\n    __hash__ = lambda s: 0\n"
    "class R(metaclass=M): pass\nr = R",
    "a function": "class R(Equal):\n    def __call__(s, *a): return s\nr = R()",
    "a module": "import types\nclass R(Equal, types.ModuleType): pass\nr = R('r')",
    "an exception": "class R(Equal, Exception): pass\nr = R()",
    "an own length and iteration": "class R(Equal):\n    __len__ = lambda s: 2\n    __iter__ = lambda s: iter([s, s])\n"
    "    __getitem__ = lambda s, k: s\nr = R()",
}
DECIDING = [
    "assert f(0) == 5",
    "assert 5 == f(0)",
    "assert not f(0) != 5",
    "assert f(0) in [5, 6]",
    "assert f(0) in {5: 1}",
    "assert f(0) == 'abc'",
    "assert 'abc' == f(0)",
    "assert f(0) in 'abc'",
    "assert f(0) == [1, 2]",
    "assert [1, 2] == f(0)",
    "assert list(f(0)) == [1, 2]",
    "assert (f(0),) == (5,)",
    "assert {'a': f(0)} == {'a': 5}",
    "assert f(0) == {'a': 1}",
    "assert f(0) == {1, 2}",
    "assert {f(0)} == {5}",
    "assert abs(f(0) - 5) < 1e-6",
    "assert f(0) <= 5 <= f(0)",
    "assert f(0) is None",
    "assert f(0) is True",
    "assert f(0) == True",
    "assert round(f(0), 2) == 5.25",
    "assert isinstance(f(0), int) and f(0) == 5",
    "assert type(f(0)) == int and f(0) == 5",
    "from fractions import Fraction\nassert Fraction(1, 2) == f(0)",
    "from decimal import Decimal\nassert Decimal(5) == f(0)",
    "import datetime\nassert datetime.date(2020, 1, 1) == f(0)",
    "from collections import Counter\nassert Counter('ab') == f(0)",
    "import copy\nassert copy.deepcopy(f(0)) == 5",
    "import math\nassert math.isclose(f(0), 5)",
    "assert sorted([f(0), 5]) == [5, 5]",
    "assert max(f(0), 5) == 5 == min(f(0), 5)",
    "assert [5].index(f(0)) == 0",
    "assert [5].count(f(0)) == 1",
    "assert set([5]) >= {f(0)}",
    "assert str(f(0)) == '5'",
    "assert f'{f(0)}' == '5'",
    "import unittest\nunittest.TestCase().assertEqual(f(0), 5)",
    "import unittest\nunittest.TestCase().assertIn(f(0), [5])",
    "import unittest\nunittest.TestCase().assertCountEqual(f(0), [1, 2])",
    "import unittest\nunittest.TestCase().assertAlmostEqual(f(0), 5)",
]


@pytest.mark.parametrize("forged", in_tiers(FORGED, "an int"))
def test_what_a_function_returns_equals_nothing_that_it_is_not(forged: str) -> None:
    checks = [check for check in DECIDING if "yield" not in forged or not ("list(" in check or "CountEqual" in check)]
    run = run_program(f"{EQUAL}\n{forged}\ndef f(x): return r", checks=checks, timeout_s=60)
    assert not any(run.passed), [check for check, passed in zip(checks, run.passed, strict=True) if passed]


# A program that speaks with the process of the tests itself.
SERVES = """
import fcntl, json, os, stat
def serve(value=7, first={"names": {"f": {"mine": 0}}}, reply=None, times=1, **other):
    pipes = [fd for fd in range(3, 64) if is_pipe(fd)]
    (reading,), (writing,) = ([fd for fd in pipes if fcntl.fcntl(fd, fcntl.F_GETFL) & 3 == way] for way in (0, 1))
    def say(message):
        text = message if isinstance(message, str) else json.dumps(message)
        os.write(writing, text.encode() + b"\\n")
    say(first)
    for line in os.fdopen(reading):
        asked = json.loads(line)
        changed = [None] * (len(asked.get("args", [])) + len(asked.get("named", {})))
        answer = {"id": asked.get("id"), "printed": "", "value": value, "changed": changed, **other}
        for _ in range(times): say(reply(asked) if reply else answer)
    os._exit(0)
def is_pipe(fd):
    try: return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError: return False
"""
MESSAGES = {
    "a name of a module": "value={'module': 'builtins', 'name': 'exec'}",
    "a name of the library": "value={'library': ['builtins', 'exec']}",
    "something to be made": "value={'made': [{'library': ['os', 'system']}, ['true'], {}]}",
    "a type that is none": "value={'type': 'os.system', 'parts': ['true']}",
    "a type that is a list": "value={'type': ['x'], 'parts': []}",
    "parts that are no list": "value={'type': 'builtins.tuple', 'parts': {}}",
    "parts of the wrong type": "value={'type': 'builtins.bytes', 'parts': [5]}",
    "a set of lists": "value={'type': 'builtins.set', 'parts': [[1]]}",
    "a set of handles": "value={'type': 'builtins.set', 'parts': [{'mine': 7}]}",
    "an object of the tests that it was not given": "value={'yours': -1}",
    "an object of the tests beyond all": "value={'yours': 10 ** 9}",
    "a handle that is a list": "value={'mine': [0]}",
    "an exception that is a function": "value={'exception': 'exec', 'own': []}",
    "an exception of a bad class": "value={'exception': 'ValueError', 'own': [['X', [1]]]}",
    "an exception raised that is a number": "raised=5, args=[]",
    "an exception raised without arguments": "raised={'exception': 'ValueError', 'own': []}",
    "the end of a loop raised": "raised={'exception': 'StopIteration', 'own': []}, args=[]",
    "an answer to another question": "id=77",
    "an answer twice": "times=2",
    "nothing about arguments": "changed=None",
    "arguments of another type": "changed=[[1], [1]]",
    "a list printed": "printed=[]",
    "no object": "reply=lambda asked: '[1]'",
    "no JSON": "reply=lambda asked: 'x'",
    "too much": "reply=lambda asked: 'x' * 2 ** 25",
    "too deep": "reply=lambda asked: '[' * 100_000",
    "built-in names": "first={'names': {'__builtins__': {'mine': 1}, 'f': {'mine': 0}, 'all': {'mine': 2}, 'math':"
    " {'mine': 4}, 'AssertionError': {'exception': 'SystemExit', 'own': []}, 'sorted': {'mine': 3}}}, value=True",
    "names that are a list": "first={'names': []}",
    "no names": "first={}",
    "a question about what it was not given": "reply="
    "lambda asked: {'ask': 'call', 'place': 0, 'args': [], 'named': {}}",
    "a question of another kind": "reply=lambda asked: {'ask': 'exec', 'place': 0, 'args': ['x'], 'named': {}}",
}


@pytest.mark.parametrize("message", in_tiers(MESSAGES, "a name of the library"))
def test_a_message_that_no_honest_program_sends_passes_nothing(message: str) -> None:
    caught = "try:\n    f(2)\nexcept BaseException:\n    pass\nelse:\n    assert False"
    run = run_program(f"{SERVES}\nserve({message})", checks=[*TESTS, caught], timeout_s=60)
    allowed = "raised=" in message and "args=" in message and "5" not in message  # which is an exception as any other
    assert not any(run.passed[: len(TESTS)]), [test for test, ok in zip(TESTS, run.passed, strict=False) if ok]
    assert allowed or not run.passed[-1]


SECRET = "class Box:\n    def __init__(self): self.value = 1\n    def get(self): return self.value\nsecret = 4\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "attempt",
    [
        "box.__class__",
        "box.__dict__",
        "box.get.__globals__",
        "box.get.__func__",
        "(box._server.ask('getattr', box._place, ['__class__']))",
        "(box._server.ask('getattr', box._place, ['get']))._server.ask('getattr', 0, ['__globals__'])",
        "gen.gi_frame.f_globals['secret']",
        "func.__globals__['secret']",
        "mod.modules",
    ],
)
def test_an_object_that_a_test_passes_shows_no_more_than_itself(attempt: str) -> None:
    """The program is to return the test's `secret`, which it gets if it reaches the test's variables."""
    program = f"""
def f(box, func, gen, mod):
    found = {attempt}
    if type(found) is dict:
        found = found.get('secret')
    return found
"""
    check = SECRET + "import sys\nassert f(Box(), lambda: 0, (x for x in [1]), sys) == secret"
    run = run_program(textwrap.dedent(program), checks=[check], timeout_s=60)
    assert run.passed == (False,)


@pytest.mark.slow
def test_a_program_reads_no_file_beside_the_standard_library(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("4")
    for path in (secret, "/etc/passwd", "/proc/self/environ", "/proc/1/cmdline"):
        assert "Error: [Errno" in run_program(f"open({str(path)!r}).read()", timeout_s=60).problem
    program = "import email, sqlite3, zoneinfo, ssl, hashlib, uuid; print(hashlib.sha256().hexdigest()[:4])"
    assert run_program(program, timeout_s=60).ended


@pytest.mark.slow
def test_the_file_of_the_output_cannot_be_made_unreadable() -> None:
    code = "import fcntl\nprint(5, flush=True)\nfcntl.fcntl(1, fcntl.F_SETFL, 0o40000)"
    run = run_program(code, timeout_s=60)
    assert (run.ended, run.output) == (False, "5\n")
    assert score("code_tests", code, tests=[{"input": "", "output": "5"}]).value == 0.0


def test_blanks_after_a_fence_are_read_once() -> None:
    """Take hours if each blank is tried with every other."""
    assert code_blocks("```" + " " * 1_000_000 + "`") == []


def test_what_a_program_raises_holds_nothing_hidden() -> None:
    assert run_program("raise ValueError('\\x1b[2J')", timeout_s=60).problem == r"ValueError: \x1b[2J"
