"""Whatever a reward does wrong is an outcome with a reason, in every convention, and never a 0."""

import asyncio
import builtins
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.rewards import Outcome, Score, resolve_reward
from agent_tunix.rewards.conventions import CallSettings, adapt
from agent_tunix.rewards.execution import make_runner
from tests.raising import raises

from .shapes import ALL, SEVERAL, SINGLE, WHOLE, samples

TEXT = CallSettings(completions="text")
IMPORT = builtins.__import__


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError


class Unreadable(float):
    def __float__(self) -> float:
        raise OSError("no number today")


def raising(error: BaseException) -> Callable[[str], Any]:
    def inner(response: str) -> Any:
        raise error

    return inner


# What goes wrong with one completion: what the code does, and the outcome with a part of its reason.
FAULTS: dict[str, tuple[Callable[[str], Any], Outcome, str]] = {
    "division by zero": (lambda response: 1 / 0, Outcome.ERROR, "ZeroDivisionError: division by zero"),
    "recursion": (raising(RecursionError("deep")), Outcome.ERROR, "RecursionError"),
    "memory": (raising(MemoryError()), Outcome.ERROR, "MemoryError"),
    "timeout of its own": (raising(TimeoutError("slow")), Outcome.ERROR, "TimeoutError: slow"),
    "exit": (raising(SystemExit(3)), Outcome.ERROR, "SystemExit"),
    "generator exit": (raising(GeneratorExit()), Outcome.ERROR, "GeneratorExit"),
    "unprintable": (raising(UnprintableError()), Outcome.ERROR, "UnprintableError"),
    "long message": (raising(ValueError("x" * 10_000)), Outcome.ERROR, "…"),
    "bad reference": (raising(BadReferenceError("'' is no number")), Outcome.BAD_REFERENCE, "'' is no number"),
    "nan": (lambda response: math.nan, Outcome.ERROR, "nan; a reward is finite"),
    "numpy nan": (lambda response: np.float32("nan"), Outcome.ERROR, "nan; a reward is finite"),
    "inf": (lambda response: math.inf, Outcome.ERROR, "inf; a reward is finite"),
    "huge": (lambda response: 1e13, Outcome.ERROR, "at most 1e+12"),
    "huge integer": (lambda response: 10**400, Outcome.ERROR, "OverflowError"),
    "decimal nan": (lambda response: Decimal("nan"), Outcome.ERROR, "nan; a reward is finite"),
    "string": (lambda response: "1.0", Outcome.ERROR, "a str of length 3"),
    "list": (lambda response: [1.0], Outcome.ERROR, "a list of length 1"),
    "tuple": (lambda response: (1.0, "why"), Outcome.ERROR, "a tuple of length 2"),
    "array": (lambda response: np.ones(2), Outcome.ERROR, "a ndarray of length 2"),
    "generator": (lambda response: (x for x in [1.0]), Outcome.ERROR, "a generator"),
    "object": (lambda response: object(), Outcome.ERROR, "an object"),
    "unreadable": (lambda response: Unreadable(), Outcome.ERROR, "OSError: no number today"),
    "none": (lambda response: None, Outcome.NOT_APPLICABLE, ""),
}


def score_all(given: Any, *responses: str) -> list[Score]:
    return adapt(given, "mine", settings=TEXT).score(samples(*responses))


# The whole table is run on the plain convention; of the others each shows that it goes the same way.
REPRESENTATIVE = ("division by zero", "exit", "long message", "bad reference", "nan", "tuple", "unreadable", "none")
OTHERS = [convention for convention in ALL if convention != "plain"]
CASES = [("plain", fault) for fault in FAULTS] + [(other, fault) for other in OTHERS for fault in REPRESENTATIVE]


@pytest.mark.parametrize(("convention", "fault"), CASES)
def test_a_fault_is_an_outcome_with_its_reason(convention: str, fault: str) -> None:
    inner, outcome, reason = FAULTS[fault]
    scores = score_all(ALL[convention](inner), "a", "b", "c")
    assert [(score.value, score.outcome) for score in scores] == [(None, outcome)] * 3
    assert all(reason in score.detail for score in scores), scores[0].detail
    assert all(len(score.detail) < 1000 for score in scores)


@pytest.mark.parametrize("fault", ["nan", "huge integer", "list", "unreadable", "none"])
@pytest.mark.parametrize("convention", ALL)
def test_a_faulty_value_spoils_only_its_own_completion(convention: str, fault: str) -> None:
    inner, outcome, _ = FAULTS[fault]
    scores = score_all(ALL[convention](lambda response: inner(response) if response == "b" else 1.0), "a", "b", "c")
    assert [score.outcome for score in scores] == [Outcome.SCORED, outcome, Outcome.SCORED]
    assert [score.value for score in scores] == [1.0, None, 1.0]


@pytest.mark.parametrize("convention", SINGLE)
def test_an_exception_spoils_only_its_own_completion(convention: str) -> None:
    scores = score_all(SINGLE[convention](lambda response: 1 / (response != "b")), "a", "b", "c")
    assert [score.outcome for score in scores] == [Outcome.SCORED, Outcome.ERROR, Outcome.SCORED]


@pytest.mark.parametrize("convention", ALL)
def test_the_users_own_line_is_named(convention: str) -> None:
    (score,) = score_all(ALL[convention](lambda response: 1 / 0), "a")
    assert "test_faults.py" in score.detail or "shapes.py" in score.detail
    assert "conventions/base.py" not in score.detail.replace("tests/", "")


@pytest.mark.parametrize("convention", ALL)
def test_an_interrupt_goes_through(convention: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        score_all(ALL[convention](raising(KeyboardInterrupt())), "a")


@pytest.mark.parametrize("convention", ["plain_async", "trl_async", "miles", "miles_group", "environment"])
def test_a_cancellation_of_its_own_is_an_error(convention: str) -> None:
    scores = score_all(ALL[convention](raising(asyncio.CancelledError())), "a", "b")
    assert [score.outcome for score in scores] == [Outcome.ERROR, Outcome.ERROR]


async def awaited() -> list[float]:
    return [1.0, 1.0]


def generate() -> Any:
    yield 1.0
    yield 1.0


# What is returned for a batch or group of two, instead of a list of two values.
RETURNS: dict[str, tuple[Callable[[], Any], str]] = {
    "too few": (lambda: [1.0], "returned 1 values for 2 completions"),
    "too many": (lambda: [1.0] * 3, "returned 3 values for 2 completions"),
    "empty": (list, "returned 0 values for 2 completions"),
    "scalar": (lambda: 1.0, "returned a float"),
    "zero": (lambda: 0, "returned an int"),
    "none": (lambda: None, "returned None"),
    "generator": (generate, "returned a generator"),
    "array": (lambda: np.ones((2, 1)), "returned a ndarray of length 2"),
    "scalar array": (lambda: np.array(1.0), "returned a ndarray"),
    "mapping": (lambda: {"a": 1.0, "b": 1.0}, "returned a dict of length 2"),
    "string": (lambda: "11", "returned a str of length 2"),
    "coroutine": (lambda: awaited(), "returned a coroutine"),
}


@pytest.mark.parametrize("returned", RETURNS)
@pytest.mark.parametrize("convention", WHOLE)
def test_a_return_that_matches_no_completions_is_an_error_of_each(convention: str, returned: str) -> None:
    make, reason = RETURNS[returned]
    scores = score_all(WHOLE[convention](lambda responses: make()), "a", "b")
    if convention == "environment_group" and returned == "none":  # a group reward may have nothing to say
        assert [score.outcome for score in scores] == [Outcome.NOT_APPLICABLE] * 2
        return
    assert [score.outcome for score in scores] == [Outcome.ERROR, Outcome.ERROR]
    assert all(score.detail.startswith(reason) for score in scores), scores[0].detail


@pytest.mark.parametrize("convention", ALL)
def test_no_samples_give_no_scores(convention: str) -> None:
    assert score_all(ALL[convention](float)) == []


@pytest.mark.parametrize("convention", ALL)
def test_a_reward_says_if_it_takes_several_completions(convention: str) -> None:
    assert adapt(ALL[convention](float), "mine").needs_group is (convention in SEVERAL)


def test_a_class_that_cannot_be_made_is_an_error_of_each_completion() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no such model")

        def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
            return {"a": 1.0}

    scores = score_all(Broken, "a", "b")
    assert [score.outcome for score in scores] == [Outcome.ERROR, Outcome.ERROR]
    assert "OSError: no such model" in scores[0].detail


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        ("right", 1.0, ""),
        (None, None, "rewards.reward_key does not name the entry that is the reward; its entries are right, length"),
    ],
)
def test_a_plain_function_may_return_a_dict_with_a_key(key: str | None, value: float | None, detail: str) -> None:
    settings = CallSettings(reward_key=key)
    (score,) = adapt(lambda response: {"right": 1, "length": 4}, "mine", settings=settings).score(samples("four"))
    assert score.value == value
    assert detail in score.detail
    assert value is None or score.components["length"] == 4.0


@pytest.mark.parametrize(
    "value", [1, True, np.float32(1), np.float64(1), np.int64(1), np.array(1.0), Decimal(1), Fraction(1)]
)
def test_the_value_of_a_score_is_a_float_whatever_it_was_given(value: Any) -> None:
    assert type(Score(value).value) is float
    assert Score(value).value == 1.0


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "components of no names": (lambda: Score(1.0, components=[1]), "`components` must be a mapping, not a list"),  # type: ignore[arg-type]
    "component of no number": (lambda: Score(1.0, components={"a": "x"}), "'a' must be a finite number, not a str"),  # type: ignore[dict-item]
    "component nan": (lambda: Score(1.0, components={"a": float("nan")}), "'a' must be a finite number, not nan"),
    "metric of no number": (lambda: Score(1.0, metrics={"m": "x"}), "'m' must be a finite number, not a str"),  # type: ignore[dict-item]
    "extras of no names": (lambda: Score(1.0, extras=3), "`extras` must be a mapping, not an int"),  # type: ignore[arg-type]
    "detail of no text": (lambda: Score(1.0, detail=3), "`detail` must be text, not an int"),  # type: ignore[arg-type]
    "no outcome": (lambda: Score(None, outcome="lost"), "'lost' is not a valid Outcome"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("convention", ["plain", "trl"])
def test_a_broken_score_is_an_error_that_names_the_field(convention: str, broken: str) -> None:
    make, message = BROKEN[broken]
    given = ALL[convention](lambda response: make() if response == "b" else Score(1.0))
    first, second = score_all(given, "a", "b")
    assert (first.value, second.outcome) == (1.0, Outcome.ERROR)
    assert "returned a Score that cannot be used" in second.detail
    assert message in second.detail


def test_a_returned_score_is_totalled_whatever_numbers_it_holds() -> None:
    def reward(response: str) -> Score:
        return Score(Decimal("0.5"), components={"a": Fraction(1, 4), "b": None})  # type: ignore[arg-type,dict-item]

    (score,) = resolve_reward({"mine": {"function": reward, "weight": 2.0}}).score(samples("a"))
    assert score.value == 1.0
    assert score.parts["mine"].components == {"a": 0.25, "b": None}


def test_what_a_score_says_is_kept_and_what_only_a_mixture_says_is_not() -> None:
    def reward(response: str) -> Score:
        return Score(1.0, detail="why", extras={"seen": 1}, metrics={"m": 2}, parts={"x": Score(0.0)}, seconds=99.0)

    (score,) = adapt(reward, "mine").score(samples("a"))
    assert (score.detail, score.extras, score.metrics, score.parts) == ("why", {"seen": 1}, {"m": 2.0}, {})
    assert score.seconds < 99


# --- imports that fail during a call

IMPORTING = """
import asyncio
import contextlib
import importlib
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from HELPER import grade

def in_the_body(response):
    try:
        import absent_library.scoring
        return absent_library.scoring.score(response)
    except Exception:
        return 0.0

def none_instead(response):
    try:
        from absent_library import score
    except ImportError:
        score = None
    return 0.0 if score is None else score(response)

def suppressed(response):
    with contextlib.suppress(ImportError):
        import absent_library
        return 1.0
    return None

def by_name(response):
    try:
        return import_module("absent_library").score(response)
    except ModuleNotFoundError:
        return -1.0

def zeros_for_all(completions, **kwargs):
    try:
        import absent_library
    except ImportError as error:
        return [dict(score=0.0, why=str(error))["score"]] * len(completions)

def any_error(response):
    try:
        from absent_library import score
        return score(response)
    except Exception:
        return float(response == "a")

def of_a_helper(response):
    return grade(response)

def in_a_thread(response):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(grade, response).result()

async def awaited(response):
    await asyncio.sleep(0)
    return await asyncio.to_thread(grade, response)

def of_a_batch(completions, **kwargs):
    return [grade(completion) for completion in completions]

class Constructed:
    def __init__(self):
        try:
            import absent_library
        except ImportError:
            absent_library = None
        self.score = absent_library

    def __call__(self, response):
        return 0.0 if self.score is None else 1.0

def of_a_placeholder(response):
    try:
        import verifiers as absent_library
        return absent_library.MathRubric().score(response)
    except Exception:
        return 0.0

def replaced(response):
    try:
        import absent_library as re
    except ImportError:
        import re
    return float(len(re.findall("a", response)))

def defined(response):
    try:
        from absent_library import count
    except Exception:
        def count(text):
            return 1
    return float(count(response))

def computed(response):
    try:
        from absent_library import score
        return score(response)
    except ImportError:
        return float(response == "a")

def asked(response):
    return float(importlib.util.find_spec("absent_library") is None)

def of_a_library(response):
    import sympy  # tries to import what it does without
    return float(sympy.Integer(1))
"""
HELPER = """
def grade(text):
    try:
        import absent_library
        return absent_library.grade(text)
    except Exception:
        return 0.0
"""
SWALLOWED = [
    *("in_the_body", "none_instead", "suppressed", "by_name", "of_a_helper", "in_a_thread"),
    *("awaited", "zeros_for_all", "any_error", "of_a_batch", "Constructed", "of_a_placeholder"),
]
TAKEN = ["replaced", "defined", "computed", "asked", "of_a_library"]


def write_importing(directory: Path) -> Path:
    helper = f"helper_of_{directory.name}"
    (directory / f"{helper}.py").write_text(HELPER)
    (directory / "importing.py").write_text(IMPORTING.replace("HELPER", helper))
    return directory / "importing.py"


@pytest.mark.parametrize("name", SWALLOWED)
def test_a_failed_import_leaves_the_completion_unscored_whoever_catches_it(name: str, tmp_path: Path) -> None:
    mixture = resolve_reward(f"{write_importing(tmp_path)}:{name}", completions="text")
    for score in mixture.score(samples("a", "b")):  # the second completion as the first
        assert (score.value, score.outcome) == (None, Outcome.ERROR)
        assert "verifiers is not installed" in score.detail or "absent_library" in score.detail


@pytest.mark.parametrize("name", TAKEN)
def test_an_import_with_a_replacement_and_one_that_is_no_need_of_the_reward_do_not_count(
    name: str, tmp_path: Path
) -> None:
    (score,) = resolve_reward(f"{write_importing(tmp_path)}:{name}").score(samples("a"))
    assert score.value == 1.0, score.detail


def test_failed_imports_count_in_workers_and_in_direct_calls(tmp_path: Path) -> None:
    file = write_importing(tmp_path)
    specs = {name: f"{file}:{name}" for name in ("in_the_body", "awaited", "replaced")}
    with make_runner(resolve_reward(specs), "process", num_workers=1) as runner:
        (score,) = runner.reward.score(samples("a"))
    assert [score.parts[name].value for name in specs] == [None, None, 1.0]
    reward = resolve_reward(f"{file}:in_the_body").components[0].reward
    with raises(RewardError, "invalid_score"):
        reward("a")  # type: ignore[operator]


def test_a_call_without_a_failed_import_is_scored_beside_one_with_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def reward(response):\n"
        "    try:\n"
        "        if response == 'b':\n"
        "            import absent_library\n"
        "    except ImportError:\n"
        "        return 0.0\n"
        "    return 1.0\n"
    )
    scores = resolve_reward(f"{tmp_path}/mine.py:reward").score(samples("a", "b", "a"))
    assert [score.value for score in scores] == [1.0, None, 1.0]
    assert builtins.__import__ is IMPORT


def test_a_failed_import_that_a_file_catches_while_it_loads_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(
        "try:\n    import absent_library\nexcept ImportError:\n    absent_library = None\n"
        "try:\n    import absent_too as re\nexcept ImportError:\n    import re\n"
        "def reward(response):\n    return 1.0\n"
    )
    assert resolve_reward(f"{tmp_path}/mine.py:reward").score(samples("a"))[0].value == 1.0
    (message,) = [record.getMessage() for record in caplog.records if "the import of" in record.getMessage()]
    assert f"the import of absent_library failed ({tmp_path}/mine.py:2" in message
