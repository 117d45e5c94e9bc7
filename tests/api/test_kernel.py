"""Runs that are started from the cells of a real kernel."""

import json
import re
from typing import Any

import pytest

from tests.kernels import Cells, code, displayed, execute, result
from tests.small_run import SMALL_RUN

pytestmark = pytest.mark.slow

TRAINED = [override for override in SMALL_RUN if not override.startswith("evaluation.")] + ["evaluation.num_samples=0"]
ACTED = [
    *(override for override in TRAINED if not override.startswith(("data.", "training.num_batches"))),
    *("environment=calculator", "environment.max_episode_tokens=32", "environment.max_turns=2"),
    *("training.num_batches=1", "environment.num_workers=2"),
]

CELLS = [
    f"import json, os, signal, agent_tunix\nTRAINED = {TRAINED!r}\nACTED = {ACTED!r}",
    """
factor = 1.0
def mine(response):
    return factor * len(response)
run = agent_tunix.train(*TRAINED, reward=mine, directory="first")
json.dumps(list(run.metrics["rewards/total/mean"]))
""",
    """
def mine(response):
    return -factor * len(response)
run = agent_tunix.train(*TRAINED, reward=mine, directory="second")
json.dumps(list(run.metrics["rewards/total/mean"]))
""",
    """
def make(value):
    return lambda response: value

class Longer:
    def __init__(self, than):
        self.than = than
    def __call__(self, response):
        return float(len(response) > self.than)

reward = {"closure": make(3.0), "lambda": lambda response: float("<" in response), "class": Longer(20)}
run = agent_tunix.train(*TRAINED, reward=reward, directory="third")
json.dumps({name: run.metrics[f"rewards/{name}/mean"].iloc[0] for name in reward})
""",
    """
class Counter:
    \"\"\"A counter.\"\"\"
    def __init__(self):
        self.calls = 0
    def reset(self, **row):
        self.calls = 10
    def count(self) -> str:
        \"\"\"Count a call.\"\"\"
        self.calls += 1
        return str(self.calls)

def twice(number: float) -> float:
    \"\"\"Return twice a number.

    Args:
        number: The number.
    \"\"\"
    return 2 * number

run = agent_tunix.train(*ACTED, environment=Counter, tools=[twice], reward=lambda response: 1.0, directory="fourth")
environment = run.config.environment
json.dumps([environment.name, environment.tools, len(run.rollouts(step=1))])
""",
    """
class Stop(agent_tunix.Callback):
    def on_step(self, state, metrics):
        if state.step == 2:
            os.kill(os.getpid(), signal.SIGINT)  # as the stop button does

try:
    agent_tunix.train(*TRAINED, reward=mine, directory="fifth", callbacks=[Stop()])
except agent_tunix.errors.Interrupted as error:
    message = str(error)
run = agent_tunix.open_run("fifth")
json.dumps([message, run.status, len(run.metrics), run.resume().status, len(run.metrics)])
""",
    "run",
    "run.report()",
    'run.replay(reward="math")',
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Cells:
    return execute([code(text) for text in CELLS], tmp_path_factory.mktemp("kernel"))


def told(cell: Any) -> Any:
    """Return the JSON that a cell's last expression shows."""
    return json.loads(result(cell).strip("'\"").encode().decode("unicode_escape"))


def test_a_changed_cell_gives_other_rewards(cells: Cells) -> None:
    first, second = told(cells[1]), told(cells[2])
    assert first[0] == -second[0] > 0  # the same completions of the first step
    assert all(reward < 0 for reward in second)


def test_closures_lambdas_and_objects_train(cells: Cells) -> None:
    rewards = told(cells[3])
    assert rewards["closure"] == 3.0
    assert rewards["lambda"] > 0


def test_an_environment_with_state_and_a_tool_of_a_cell_train(cells: Cells) -> None:
    assert told(cells[4]) == ["Counter", ["twice"], 16]


def test_an_interrupted_cell_leaves_a_checkpoint_and_resumes(cells: Cells) -> None:
    message, stopped, num_rows, finished, num_rows_at_end = told(cells[5])
    assert re.search(r"agent_tunix\.open_run\('.*fifth'\)\.resume\(\)", message)
    assert (stopped, num_rows, finished, num_rows_at_end) == ("stopped", 2, "finished", 4)


def test_a_run_draws_its_progress_and_shows_itself(cells: Cells) -> None:
    (drawn,) = displayed(cells[1])
    assert "step 4/4" in drawn
    assert "<polyline" in drawn
    assert "finished" in result(cells[6], "text/html")
    assert result(cells[7], "text/html").startswith("<iframe")
    assert "64 completions of 4 steps" in result(cells[8])
