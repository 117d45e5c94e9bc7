"""Tests that run apart from the program: what they can do with it, and what it cannot do to them."""

import sys
import textwrap

import pytest

from agent_tunix.execution.sandbox import run_program
from tests.rewards.builtin.cases import score

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
    "numbers": (
        "def f(x): return 2 * x",
        "assert f(2) == 4 and f(-1.5) == -3.0 and f(10**30) == 2 * 10**30",
    ),
    "close numbers": (
        "def f(x): return x / 3",
        """
            assert abs(f(1) - 0.33333) < 1e-3
            assert 0 < f(1) < 1
            """,
    ),
    "a large number": (
        "def f(): return 7**9000",
        "assert f() == 7**9000",
    ),
    "not finite": (
        "def f(): return float('inf'), float('nan')",
        """
            a, b = f()
            assert a == float('inf') and b != b
            """,
    ),
    "texts": (
        "def f(s): return s[::-1]",
        "assert f('abc\\n\\ud800') == '\\ud800\\ncba'",
    ),
    "nested": (
        "def f(x): return {'a': [(1, {2})], x: None}",
        "assert f('b') == {'a': [(1, {2})], 'b': None}",
    ),
    "kinds differ": (
        "def f(): return (1, 2)",
        "assert f() != [1, 2] and type(f()) is tuple and f() == (1, 2)",
    ),
    "truth": (
        "def f(x): return x > 1",
        """
            assert f(2) is True
            assert not f(1)
            """,
    ),
    "bytes": (
        "def f(): return b'ab', bytearray(b'c')",
        "assert f() == (b'ab', bytearray(b'c'))",
    ),
    "collections": (
        """
            from collections import *
            def f(s): return Counter(s), deque([1]), OrderedDict(a=1), defaultdict(int, b=2)
            """,
        """
            from collections import Counter, deque
            assert f('aa') == (Counter(a=2), deque([1]), {'a': 1}, {'b': 2})
            """,
    ),
    "exact numbers": (
        """
            from fractions import Fraction
            from decimal import Decimal
            def f(): return Fraction(1, 3), Decimal('1.10')
            """,
        """
            from fractions import Fraction
            import decimal
            assert f() == (Fraction(1, 3), decimal.Decimal('1.1'))
            """,
    ),
    "dates": (
        """
            import datetime as d
            def f(): return d.date(2024, 2, 29), d.datetime(2024, 1, 1, 5), d.timedelta(hours=1)
            """,
        """
            import datetime as d
            assert f() == (d.date(2024, 2, 29), d.datetime(2024, 1, 1, 5), d.timedelta(hours=1))
            """,
    ),
    "a named tuple": (
        """
            from collections import namedtuple
            P = namedtuple('P', 'x y')
            def f(): return P(1, 2)
            """,
        """
            p = f()
            assert p == (1, 2) and p.x == 1 and p[1] == 2 and sum(p) == 3
            assert p == P(1, 2)
            """,
    ),
    "an enumeration": (
        """
            import enum
            class Color(enum.Enum):
                RED = 1
            def f(): return Color.RED
            """,
        "assert f() == Color.RED and f().name == 'RED' and f() is not None",
    ),
    "a generator": (
        """
            def f(n):
                yield from range(n)
            """,
        """
            assert list(f(3)) == [0, 1, 2]
            assert next(f(1)) == 0
            """,
    ),
    "arguments changed": (
        "def f(a, d): a.sort(); d['x'] = 1",
        """
            a, d = [3, 1], {}
            f(a, d)
            assert (a, d) == ([1, 3], {'x': 1})
            """,
    ),
    "a function passed": (
        "def f(g, x): return g(g(x))",
        "assert f(lambda x: x + 1, 3) == 5",
    ),
    "a key passed": (
        "def f(xs, key=None): return sorted(xs, key=key)",
        "assert f([1, -2], key=abs) == [1, -2]",
    ),
    "an error": (
        "def f(x): return 1 / x",
        """
            try:
                f(0)
                assert False
            except ZeroDivisionError as e:
                assert 'zero' in str(e)
            """,
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
        """
            s = Stack(5)
            s.push(1)
            assert s.pop() == 1 and len(s) == 1 and s[0] == 5 and s.items == [5]
            """,
    ),
    "two objects": (
        STACK,
        """
            assert Stack(1) + Stack(2) == Stack(1, 2)
            assert Stack(1) != Stack(2)
            assert Stack(1) != 1
            """,
    ),
    "kinds of objects": (
        STACK,
        "assert isinstance(Stack(), Stack) and not isinstance(3, Stack) and Stack.limit == 3",
    ),
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
    "membership": (
        STACK,
        "assert 2 in Stack(1, 2) and 3 not in Stack(1, 2) and list(Stack(1, 2)) == [1, 2]",
    ),
    "a context": (
        STACK,
        """
            with Stack(1) as s:
                assert len(s) == 1
            assert len(s) == 0
            """,
    ),
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
        """
            def check(candidate):
                assert candidate(2) == 4
                assert candidate(0) == 0
            check(f)
            """,
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
        """
            import math
            from math import *
            from typing import List
            def f(x: List): return x
            """,
        "assert math.isclose(pi, 3.14159, abs_tol=1e-3) and sqrt(4) == 2 and f([1]) == [1]",
    ),
    "a built-in's name": (
        """
            def sum(xs):
                t = 0
                for x in xs: t += x
                return t
            """,
        "assert sum([1, 2]) == 3",
    ),
    "variables": (
        """
            x = {'a': 1}
            y = [1]
            """,
        "assert x['a'] == 1 and y == [1]",
    ),
    "decorated": (
        """
            import functools
            @functools.lru_cache
            def f(n): return n if n < 2 else f(n-1) + f(n-2)
            """,
        "assert f(90) == 2880067194370816120",
    ),
    "after exit": (
        """
            def f(): return 4
            raise SystemExit
            """,
        "assert f() == 4",
    ),
}


@pytest.mark.parametrize(("program", "test"), RIGHT.values(), ids=RIGHT)
def test_a_right_program_passes(program: str, test: str) -> None:
    run = run_program(textwrap.dedent(program), checks=[textwrap.dedent(test)], timeout_s=20)
    assert (run.passed, run.problem) == ((True,), "")


def test_statements_share_their_variables() -> None:
    checks = [
        "import math\nlimit = 4",
        "assert f(2) <= limit",
        "assert math.floor(f(2.5)) == 5",
        "assert f(limit) == 9",
    ]
    run = run_program("def f(x): return 2 * x", checks=checks, timeout_s=20)
    assert run.passed == (True, True, True, False)
    assert run.problem == "AssertionError:"


def test_a_statement_that_is_none_fails_alone() -> None:
    run = run_program("def f(x): return 2 * x", checks=["assert f(2) == (4", "assert f(2) == 4"], timeout_s=20)
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
    "names of built-ins": """
        abs = lambda x: 0
        sorted = set = list = str = lambda x: 40961
        def f(x): return 7
        """,
    "no assertion error": """
        import builtins
        builtins.AssertionError = SystemExit
        def f(x): return 7
        """,
    "exit": """
        import sys
        def f(x): sys.exit(0)
        """,
    "exit replaced": """
        import sys, os
        sys.exit = os._exit = lambda *a: None
        def f(x): raise SystemExit(0)
        """,
    "hard exit": """
        import os
        def f(x): os._exit(0)
        """,
    "hard exit at once": """
        import os
        os._exit(0)
        """,
    "claims on every descriptor": r"""
        import os
        for d in range(64):
            for t in (b'passed 0\nended\n', b'{"names": {}}\n', b'{"value": 40961, "changed": [null, null]}\n'):
                try: os.write(d, t)
                except OSError: pass
        def f(x): return 7
        """,
    "descriptors closed": """
        import os
        os.closerange(0, 64)
        def f(x): return 7
        """,
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
    "an endless answer": """
        def f(x):
            while True: yield x
        """,
    "deep nesting": """
        def f(x):
            a = []
            for _ in range(100000): a = [a]
            return a
        """,
    "itself within": """
        def f(x):
            a = []
            a.append(a)
            return a
        """,
    "a huge answer": "def f(x): return 'x' * 10**8",
    "a wrong message": """
        import json
        json.dumps = lambda *a, **k: '{"value": {"type": "os.system", "parts": ["true"]}}'
        def f(x): return 7
        """,
    "modules replaced": """
        import sys, types
        m = sys.modules['math']
        m.isclose = lambda *a, **k: True
        def f(x): return 7
        """,
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
]


@pytest.mark.parametrize("program", CHEATS.values(), ids=CHEATS)
def test_a_wrong_program_passes_nothing(program: str) -> None:
    run = run_program(textwrap.dedent(program), checks=TESTS, timeout_s=20)
    assert not any(run.passed), [test for test, passed in zip(TESTS, run.passed, strict=True) if passed]
    assert run.problem


@pytest.mark.parametrize("code", CHEATS.values(), ids=CHEATS)
def test_a_cheat_earns_nothing(code: str) -> None:
    assert score("code_tests", f"```python\n{textwrap.dedent(code)}\n```", tests=["assert f(2) == 40961"]).value == 0.0


SECRET = "class Box:\n    def __init__(self): self.value = 1\n    def get(self): return self.value\nsecret = 4\n"


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
    run = run_program(textwrap.dedent(program), checks=[check], timeout_s=20)
    assert run.passed == (False,)


def test_a_program_reads_no_file_beside_the_standard_library(tmp_path: object) -> None:
    secret = f"{tmp_path}/secret"
    with open(secret, "w", encoding="utf-8") as file:
        file.write("4")
    run = run_program(f"print(open({secret!r}).read())")
    if run.ended:
        pytest.skip("this kernel has no Landlock")
    assert "PermissionError" in run.problem
    for path in ("/etc/passwd", "/proc/self/environ", "/proc/1/cmdline"):
        assert "PermissionError" in run_program(f"open({path!r}).read()").problem
    assert run_program(
        "import email, sqlite3, zoneinfo, ssl, hashlib, uuid; print(hashlib.sha256().hexdigest()[:4])"
    ).ended
