"""The reward of reasoning_gym's tasks, and the tasks themselves.

Each task has its own scorer. Some scorers read an answer with `eval`, directly or through SymPy. Code in an answer
could change the row or the scorer. So these get only literals and formulas, and runs give the reward isolated workers.
"""

import ast
import difflib
import functools
import json
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.rewards.answers import Source, find_answer
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Score

# Columns that make a row an entry of the library.
_ENTRY = ("question", "answer", "metadata")

# Tasks whose scorers evaluate an answer: as a literal, or as a formula of SymPy.
_LITERALS = ("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion")
_FORMULAS = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
_FUNCTIONS = {f"{arc}{name}{end}" for arc in ("", "a") for name in ("sin", "cos", "tan", "cot") for end in ("", "h")}
_WORDS = {"pi", "exp", "log", "ln", "sqrt", "sec", "csc", "Abs", "factorial"} | _FUNCTIONS
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NO_FORMULA = ")"
# Tasks whose scorers do not check what the question demands, so that one text is right in every row.
_ARITHMETIC = ("countdown", "puzzle24")
_OPERATORS = re.compile(r"(?!.*(?:\*\*|//))[\d\s+*/()-]*", re.DOTALL)
_PROBABILITIES = ("coin_flip",)
_LARGEST_RELATIVE_ERROR = 0.01
_WORD_ANSWERS = ("game_of_life_halting",)
# No answer has such numbers, and with a huge exponent `Fraction` takes minutes.
_NO_NUMBER = re.compile(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])|[\d.]e[+-]?\d[\d_]{3}", re.IGNORECASE)


def reasoning_gym_reward(response: str, metadata: Mapping[str, Any]) -> Score:
    r"""Score the answer to a task of reasoning_gym with the task's own scorer. Range [0, 1].

    - 1.0: the scorer accepts the answer
    - between: the part that the scorer gives, often for a right answer with other text around it
    - 0.0: a wrong answer, or one that the scorer raises an exception for

    The answer is the text in the last `<answer>` tags, as in the library, or else the last `\boxed{…}` or `#### …`, or
    else None, for which some scorers give a small value. The row has the library's columns `question`, `answer` and
    `metadata`; the latter names the task as `source_dataset`. Rows of `data=reasoning_gym` also have `parameters`,
    because some scorers depend on them. Requires the package reasoning_gym: `pip install agent_tunix[tasks]`.

    >>> row = {"question": "What is 2 + 2?", "answer": "4", "metadata": {"source_dataset": "chain_sum"}}
    >>> score = get_reward_function("reasoning_gym")
    >>> [score(text, **{"metadata": row}) for text in ("<answer>4.0</answer>", r"so \boxed{5}")]
    [1.0, 0.0]
    """
    entry = {name: metadata.get(name) for name in _ENTRY}
    details = entry["metadata"]
    name = details.get("source_dataset") if isinstance(details, Mapping) else None
    if not isinstance(name, str):
        raise BadReferenceError(
            "the row must be an entry of reasoning_gym, with the columns question, answer and metadata, whose"
            f" source_dataset is the name of a task; metadata is {excerpt(details)}"
        )
    parameters = metadata.get("parameters")
    scorer = _scorer(
        name, json.dumps(parameters if isinstance(parameters, Mapping) else {}, sort_keys=True, default=str)
    )
    answer = extract_task_answer(response)
    text = answer
    if answer is not None and answer != entry["answer"]:
        if _is_surely_wrong(name, answer, entry):
            return Score(0.0, detail=f"{excerpt(answer)} cannot be the answer")
        if (name in _FORMULAS and not _is_formula(answer)) or (
            name in _ARITHMETIC and not _uses_numbers(answer, entry)
        ):
            text = _NO_FORMULA
    try:
        value = float(scorer(text, entry))
    except Exception as error:  # a scorer may raise anything about an answer that it cannot read
        return Score(0.0, detail=f"the scorer of {name} cannot read {excerpt(answer)}: {describe_fault(error)}")
    return Score(value, detail=f"the scorer of {name} gives {value:g} to {excerpt(answer)}")


def extract_task_answer(response: str) -> str | None:
    """Return the text in the last `<answer>` tags, or else the last box or the line after `####`, or else None."""
    from reasoning_gym.utils import extract_answer

    tagged: str | None = extract_answer(response)
    if tagged is not None:
        return tagged
    extraction = find_answer(response)
    return extraction.text if extraction is not None and extraction.source in (Source.BOXED, Source.HASHES) else None


def _is_surely_wrong(name: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Return True for an answer that a scorer may take although it is wrong."""
    if _NO_NUMBER.search(answer):
        return True
    if name in _PROBABILITIES:
        try:
            value, true = (Fraction(text.replace(",", "")) for text in (answer, str(entry["answer"])))
        except (ValueError, ZeroDivisionError):
            return False  # the scorer cannot read it either
        return abs(value - true) > _LARGEST_RELATIVE_ERROR * true
    return name in _WORD_ANSWERS and answer.strip().lower() != str(entry["answer"]).lower()


def _uses_numbers(answer: str, entry: Mapping[str, Any]) -> bool:
    """Return True if an answer is arithmetic with each of the row's numbers."""
    numbers = sorted(map(str, entry["metadata"].get("numbers", ())))
    return _OPERATORS.fullmatch(answer) is not None and sorted(re.findall(r"\d+", answer)) == numbers


def _is_formula(answer: str) -> bool:
    """Return True if an answer has only numbers, symbols of one letter, operators and known functions."""
    rest = _NUMBER.sub(" ", answer)
    words = re.findall(r"[^\W\d]\w*", rest)
    return re.fullmatch(r"[\w\s+*/^!,()-]*", rest) is not None and all(len(w) == 1 or w in _WORDS for w in words)


@functools.lru_cache(maxsize=256)
def _scorer(name: str, parameters: str) -> Any:
    task = make_task(name, json.loads(parameters), size=1, seed=0)
    if name in _LITERALS:
        vars(sys.modules[type(task).__module__])["eval"] = ast.literal_eval
    return task.score_answer


def make_task(name: str, parameters: Mapping[str, Any], *, size: int, seed: int, level: int | None = None) -> Any:
    """Return a task of reasoning_gym as the library's dataset.

    Args:
        name: Name of the task.
        parameters: Parameters of the task.
        size: Number of entries.
        seed: Seed of the entries.
        level: Level of the library's curriculum. It sets the parameters that are not given; None: the defaults do.

    Raises:
        RewardError: The library is not installed, there is no such task, the task has no levels, or it refuses a
            parameter.
    """
    try:
        from reasoning_gym import factory
    except ImportError as error:
        raise RewardError(
            f"tasks of reasoning_gym require that package ({error}); run `pip install agent_tunix[tasks]`",
            code="missing_package",
        ) from error
    names = sorted(set(factory.DATASETS) - {"composite"})
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise RewardError(f"reasoning_gym has no task {name!r}; {advice}", code="invalid_tasks")
    if level is not None and name not in factory.CURRICULA:
        raise RewardError(
            f"the task {name} has no levels; remove `levels` and set its parameters", code="invalid_tasks"
        )
    settings = {**parameters, "size": size, "seed": seed}
    try:
        if level is not None:
            curriculum = factory.create_curriculum(name)
            curriculum.set_global_level(level)
            settings = {**vars(curriculum.generate_configuration()), **settings}
        return factory.create_dataset(name, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise RewardError(
            f"reasoning_gym refuses the parameters {dict(parameters)} of the task {name}: {error}", code="invalid_tasks"
        ) from error
