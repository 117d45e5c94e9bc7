"""Processes that a reward's code starts: they find the functions of the reward's file, whatever the start method."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.loading import load_file, shown_name

from .faults import samples_of

POOLED = """
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from HELPER import contains

LIMIT = 0

class Grader:
    def __init__(self, word):
        self.word = word

    def __call__(self, text):
        return contains(text, self.word) + LIMIT

def prepare(limit):
    global LIMIT
    LIMIT = limit

def pool(method):
    context = mp.get_context(method)
    return ProcessPoolExecutor(1, mp_context=context, initializer=prepare, initargs=(1,))

def executor(completions, method, **kwargs):
    with pool(method) as executor:
        return list(executor.map(Grader("4"), completions))

def tasks(completions, method, **kwargs):
    with mp.get_context(method).Pool(1, prepare, (1,)) as workers:
        return workers.map(partial(Grader.__call__, Grader("4")), completions)

def process(completions, method, **kwargs):
    context = mp.get_context(method)
    queue = context.Queue()
    child = context.Process(target=put, args=(queue, completions))
    child.start()
    values = queue.get()
    child.join()
    return values

def put(queue, completions):
    import verifiers  # served in such a process too
    assert verifiers.Parser().parse_answer("4") == "4"
    prepare(1)
    queue.put([Grader("4")(text) for text in completions])
"""
SERVED = "from verifiers import Parser\n"
CASES = [
    ("spawn", "executor", "process"),
    ("forkserver", "executor", "process"),
    ("spawn", "tasks", "process"),
    ("forkserver", "tasks", "inline"),
    ("spawn", "process", "inline"),
    ("fork", "executor", "process"),
]


@pytest.mark.parametrize(
    ("method", "function", "execution"),
    [pytest.param(*case, marks=[pytest.mark.slow] if number > 1 else []) for number, case in enumerate(CASES)],
)
def test_a_child_process_finds_the_functions_of_a_file(
    method: str, function: str, execution: str, tmp_path: Path
) -> None:
    directory = tmp_path / "v1.2 of mine"
    directory.mkdir()
    helper = f"helper_{method}_{function}_{execution}"
    (directory / f"{helper}.py").write_text("def contains(text, word):\n    return float(word in text)\n")
    code = POOLED.replace("HELPER", helper)
    (directory / "pooled.py").write_text(SERVED + code if function == "process" else code)
    spec = {"mine": {"function": f"{directory}/pooled.py:{function}", "args": {"method": method}}}
    mixture = resolve_reward(spec, completions="text")
    with make_runner(mixture, execution, num_workers=1, timeout_s=60.0) as runner:
        scores = runner.reward.score(samples_of(["yes 4", "no"]))
    assert [score.value for score in scores] == [2.0, 1.0], scores[0].detail


def test_a_function_of_a_file_unpickles_where_the_import_path_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reward(response):\n    return 7.0\n")
    module = load_file(tmp_path / "mine.py")
    assert shown_name(module.__name__) == "mine"
    program = "import pickle, sys; sys.path[:] = eval(sys.argv[1]); print(pickle.load(sys.stdin.buffer)('x'))"
    result = subprocess.run(
        [sys.executable, "-c", program, repr(sys.path)],
        input=pickle.dumps(module.reward),
        capture_output=True,
        check=True,
        cwd="/",
    )
    assert result.stdout == b"7.0\n"
