"""Long proofs of answers and built-in rewards.

    python scripts/prove_answers.py fuzz [--strings 200000] [--seed 0]
    python scripts/prove_answers.py isolated [--strings 500]
    python scripts/prove_answers.py forms FILE.jsonl…
    python scripts/prove_answers.py references DIRECTORY
    python scripts/prove_answers.py mutants DIRECTORY [--strings 5000] [--seed 0]

`fuzz` sends strings made by Hypothesis through extraction, comparison and every built-in that runs in this process: no
exception, no value outside the documented range, no call over the limit. `isolated` does the same for built-ins that
run code in a separate process. `forms` proves every reference of GSM8K's files right in every surface form, and every
neighbour wrong. `references` proves published references right in a box, and at least 99.5 % of them in a sentence. It
lists those that `math` refuses in a box, or does not find in a sentence. `mutants` lists references with one edit (a
sign, digit, relation, bracket, letter or part) that are still paid, for a person to read. DIRECTORY holds the
evaluation data of Qwen2.5-Math: a folder per data set, each with `test.jsonl`.

`scripts/proofs.py` calls the functions. Each returns its figures, or raises AssertionError with the first failing case.
"""

import argparse
import gc
import json
import random
import re
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from agent_tunix.errors import BadReferenceError, UndecidedAnswerError
from agent_tunix.rewards import Outcome, Sample, get_reward_function
from agent_tunix.rewards.answers import (
    Ruling,
    Verdict,
    boxed_answer,
    compare_answers,
    extract_answer,
    extract_choice,
    read_reference,
    set_thorough_runner,
)
from agent_tunix.rewards.builtin import BUILTINS
from agent_tunix.workbench.checks import find_misjudged

LIMIT_S = 0.05
BATCH = 20
CHUNK = 1000

PIECES = [
    *("<think>", "</think>", "<reasoning>", "</reasoning>", "<answer>", "</answer>", "\\boxed{", "{", "}", "#### "),
    *("the answer is ", "Answer: ", "A: ", "(B)", "\\frac{", "\\sqrt", "\\pi", "\\text{", "^", "_", "\\[", "\\]", "$"),
    *("1", "25", "1,234", "1.234,5", "1 234", "0", "3e4", "1e999", "½", "−", "-", "+", "*", "/", "=", "%", ".", ","),
    *("```python\n", "```\n", "def f(x):\n", "    return x\n", "(", ")", "[", "]", '{"a": 1}', "[Source: a]", "[1]"),
    *("Step 1: ", "1. ", "- ", "\n", "\n\n", " ", " so ", "word ", "四", "дом ", "\x00", "\ud800", "İ", "²", "٣", "x"),
]
STRINGS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.builds(lambda piece, times: piece * times, st.sampled_from(PIECES), st.integers(0, 1500)),
    st.text("0123456789.,-+*/^(){}[]\\ $%=xpisqrtfac", max_size=150),
)
COLUMNS = {"schema": {"type": "object", "required": ["a"]}, "sources": ["a", "b"], "tests": ["assert f(2) == 2"]}
ANSWERS = ("4", "-5", "1/2", r"\sqrt{2}", "(1, 2)", "B", "Paris", "")


def prove_fuzz(strings: int = 200_000, seed_number: int = 0, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Prove extraction and every built-in that runs in this process on random strings.

    A stub replaces the thorough tier, which belongs in workers. A slow call is repeated twice and its least time
    counts, so a busy machine causes no failure.
    """
    in_process = [name for name, builtin in BUILTINS.items() if not builtin.isolated]
    return _prove(in_process, strings, seed_number, limit_s)


def prove_isolated(strings: int = 500, seed_number: int = 0, limit_s: float = 30.0) -> dict[str, Any]:
    """Prove the built-ins that run code in a separate process on random strings, each under its own limit."""
    isolated = [name for name, builtin in BUILTINS.items() if builtin.isolated]
    return _prove(isolated, strings, seed_number, limit_s)


def prove_forms(files: list[Path]) -> dict[str, Any]:
    """Prove every reference of files in GSM8K's schema right in every form, and every neighbour wrong."""
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    references = [row["answer"].rpartition("####")[2].strip() for row in rows]
    judge = get_reward_function("math")
    wrong = list(find_misjudged(references, lambda response, answer: judge(response, answer=answer) == 1.0))
    assert not wrong, f"{len(wrong)} misjudged, first {wrong[0]}"
    return {"references": len(references), "misjudged": 0}


DATA_SETS = {
    "math": "answer",
    "math500": "answer",
    "olympiadbench": "final_answer",
    "minerva_math": "solution",
    "carp_en": "answer",
    "gaokao2023en": "answer",
    "college_math": "answer",
    "asdiv": "answer",
    "svamp": "Answer",
}


def read_references(directory: Path) -> dict[str, list[str]]:
    """Return the references of each data set in the directory."""
    found = {}
    for name, column in DATA_SETS.items():
        file = directory / name / "test.jsonl"
        if file.is_file():
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
            values = [row[column] for row in rows]
            texts = [",".join(value) if isinstance(value, list) else str(value) for value in values]
            found[name] = [(boxed_answer(text) or "") if column == "solution" else text for text in texts]
    return found


def _value(name: str, response: str, reference: str) -> float | str | None:
    try:
        return get_reward_function(name)(response, answer=reference)
    except BadReferenceError:
        return "refused"
    except UndecidedAnswerError:
        return "undecided"


def prove_references(directory: Path) -> dict[str, Any]:
    """Prove every boxed reference right for `answer_correctness`, and for `math` unless it is refused.

    In a sentence, between dollars, `math` must pay 99.5 % of those that it pays in a box.
    """
    seen: dict[str, Any] = {}
    paid_in_box = missed_in_sentence = 0
    for name, references in read_references(directory).items():
        values = {text: _value("math", rf"so it is \boxed{{{text}}}", text) for text in references if text.strip()}
        wrong = [text for text, value in values.items() if value not in (1.0, "refused")]
        words = [text for text in values if _value("answer_correctness", rf"so it is \boxed{{{text}}}", text) != 1.0]
        assert not wrong, f"{name}: wrong {wrong[:3]}"
        assert not words, f"{name}: wrong as words {words[:3]}"
        boxed = [text for text in values if values[text] == 1.0 and "\n" not in text]
        missed = [text for text in boxed if _value("math", _sentence(text), text) != 1.0]
        paid_in_box, missed_in_sentence = paid_in_box + len(boxed), missed_in_sentence + len(missed)
        refused = [text for text in values if values[text] == "refused"]
        seen[name] = {"references": len(references), "refused": refused, "missed in a sentence": missed}
    assert missed_in_sentence * 200 <= paid_in_box, f"{missed_in_sentence} of {paid_in_box} missed in a sentence"
    return seen


def _sentence(reference: str) -> str:
    formula = reference if "$" in reference else f"${reference}$"
    return f"We add the parts. The final answer is {formula}."


def prove_mutants(directory: Path, count: int = 5000, seed_number: int = 0) -> dict[str, Any]:
    """Return the references with one edit that `math` or `answer_correctness` still pays."""
    rng = random.Random(seed_number)
    references = [text for texts in read_references(directory).values() for text in texts if text.strip()]
    paid = []
    for _ in range(count):
        reference = rng.choice(references)
        mutant = mutate(reference, rng)
        values = [_value(name, f"<answer>{mutant}</answer>", reference) for name in ("math", "answer_correctness")]
        if mutant != reference and 1.0 in values:
            paid.append((reference, mutant))
    return {"mutants": count, "paid": paid}


SWAPPED = {"-": "+", "+": "-", "<": ">", ">": "<", "=": "<", "(": "[", ")": "]", "[": "(", "]": ")"}


def mutate(reference: str, rng: random.Random) -> str:
    """Return the reference with one edit."""
    edits = [("sign", -1, "")] if re.search(r"[1-9$]", reference) else [("none", -1, "")]
    edits += [("digit", found.start(), found[0]) for found in re.finditer(r"\d", reference)]
    edits += [("swap", found.start(), found[0]) for found in re.finditer(r"[-+<>=()\[\]]", reference)]
    edits += [("drop", found.start(), found[0]) for found in re.finditer(r"[(){}\[\]]", reference)]
    edits += [
        ("letter", found.start(), found[0]) for found in re.finditer(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])", reference)
    ]
    edits += [
        ("part", found.start(), found[0]) for found in re.finditer(r",(?![^(\[{]*[)\]}])|;| or | and ", reference)
    ]
    kind = rng.choice(sorted({edit[0] for edit in edits}))
    _, place, old = rng.choice([edit for edit in edits if edit[0] == kind])
    if kind == "none":
        return reference
    if kind == "sign":
        return f"$-{reference[1:]}" if reference.startswith("$") else f"-{reference}"
    if kind == "part":
        return rng.choice([reference[:place], reference[place + len(old) :]])
    if kind == "digit":
        new = rng.choice("0123456789".replace(old, ""))
    elif kind == "letter":
        new = rng.choice("abkmnpxyz".replace(old, ""))
    else:
        new = SWAPPED[old] if kind == "swap" else ""
    return reference[:place] + new + reference[place + 1 :]


def _prove(names: list[str], strings: int, seed_number: int, limit_s: float) -> dict[str, Any]:
    rewards = {name: get_reward_function(name) for name in names}
    slowest: tuple[float, str, str] = (0.0, "", "")
    done = 0

    def timed(name: str, text: str, call: Callable[[], Any]) -> Any:
        nonlocal slowest
        started = time.thread_time()
        result = call()
        taken = time.thread_time() - started
        if taken > limit_s / 2:
            for _ in range(2):
                started = time.thread_time()
                call()
                taken = min(taken, time.thread_time() - started)
        slowest = max(slowest, (taken, name, text[:80]))
        assert taken <= limit_s, f"{name} took {taken * 1000:.0f} ms for {text[:200]!r} of {len(text)} characters"
        return result

    def check(text: str, answer: str, step: int) -> None:
        timed("extract_answer", text, lambda: extract_answer(text))
        timed("extract_choice", text, lambda: extract_choice(text))
        timed("compare_answers", text, lambda: compare_answers(text, read_reference("4")))
        sample = Sample(text, prompt="?", columns={**COLUMNS, "answer": answer}, step=step)
        for name, reward in rewards.items():
            (score,) = timed(name, text, partial(reward.score, [sample]))
            assert score.outcome in (Outcome.SCORED, Outcome.BAD_REFERENCE), f"{name} for {text!r}: {score}"
            if score.value is not None:
                low, high = BUILTINS[name].low, BUILTINS[name].high
                assert low <= score.value <= high, f"{name} gave {score.value} for {text!r}"

    def run_chunk(number: int, count: int) -> None:
        @seed(seed_number * 1_000_003 + number)
        @settings(
            max_examples=-(-count // BATCH),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            st.lists(STRINGS, min_size=BATCH, max_size=BATCH),
            st.sampled_from(ANSWERS),
            st.sampled_from([1, 2000, 9999]),
        )
        def chunk(texts: list[str], answer: str, step: int) -> None:
            nonlocal done
            for text in texts:
                if done < strings:
                    check(text, answer, step)
                    done += 1

        chunk()

    previous = set_thorough_runner(lambda questions: [Ruling(Verdict.DIFFERENT)] * len(questions))
    gc.collect()
    gc.freeze()
    try:
        number = 0
        while done < strings:
            run_chunk(number, min(CHUNK, strings - done))
            number += 1
    finally:
        gc.unfreeze()
        set_thorough_runner(previous)
    return {
        "strings": done,
        "rewards": len(names),
        "slowest_ms": round(slowest[0] * 1000, 1),
        "slowest_call": f"{slowest[1]}({slowest[2]!r})",
    }


def main() -> None:
    """Run the selected proof and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=["fuzz", "isolated", "forms", "references", "mutants"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--strings", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    if arguments.proof == "forms":
        print(prove_forms(arguments.files))
    elif arguments.proof == "references":
        for name, seen in prove_references(arguments.files[0]).items():
            print(f"{name}: {seen['references']}")
            for kind in ("refused", "missed in a sentence"):
                print(f"  {kind}: {len(seen[kind])}", *map(repr, seen[kind]), sep="\n    ")
    elif arguments.proof == "mutants":
        result = prove_mutants(arguments.files[0], arguments.strings or 5000, arguments.seed)
        print(f"{result['mutants']} mutants, paid: {len(result['paid'])}")
        for reference, mutant in result["paid"]:
            print(f"    {mutant!r} for {reference!r}")
    elif arguments.proof == "fuzz":
        print(prove_fuzz(arguments.strings or 200_000, arguments.seed))
    else:
        print(prove_isolated(arguments.strings or 500, arguments.seed))


if __name__ == "__main__":
    main()
