"""Runs that are started from the cells of a real kernel."""

import json
import re
from typing import Any

import pytest

from tests.kernels import Cells, code, displayed, execute, result
from tests.small_run import SMALL_RUN

pytestmark = pytest.mark.slow

TRAINED = [override for override in SMALL_RUN if not override.startswith("evaluation.")] + ["evaluation.num_samples=0"]
CELLS = [
    f"import json, os, signal, agent_tunix\nTRAINED = {TRAINED!r}",
    """
class Stop(agent_tunix.Callback):
    def on_step(self, state, metrics):
        if state.step == 2:
            os.kill(os.getpid(), signal.SIGINT)  # as the stop button does

def mine(response):
    return len(response)

try:
    agent_tunix.train(*TRAINED, reward=mine, directory="run", callbacks=[Stop()])
except agent_tunix.errors.Interrupted as error:
    message = str(error)
run = agent_tunix.open_run("run")
json.dumps([message, run.status, len(run.metrics), run.resume().status, len(run.metrics)])
""",
    "run",
    "run.report()",
    'run.replay(reward="math")',
    'agent_tunix.train("training.num_batch=2")',
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Cells:
    cells = [code(text) for text in CELLS]
    cells[-1].metadata.tags = ["raises-exception"]
    return execute(cells, tmp_path_factory.mktemp("kernel"))


def told(cell: Any) -> Any:
    """Return the JSON that a cell's last expression shows."""
    return json.loads(result(cell).strip("'\"").encode().decode("unicode_escape"))


def test_an_interrupted_cell_leaves_a_checkpoint_and_resumes(cells: Cells) -> None:
    message, stopped, num_rows, finished, num_rows_at_end = told(cells[1])
    assert re.search(r"agent_tunix\.open_run\('.*run'\)\.resume\(\)", message)
    assert (stopped, num_rows, finished, num_rows_at_end) == ("stopped", 2, "finished", 4)


def test_a_run_draws_its_progress_and_shows_itself(cells: Cells) -> None:
    drawn = displayed(cells[1])
    assert ["step 2/4" in drawn[0], "step 4/4" in drawn[1]] == [True, True]
    assert all("<polyline" in one for one in drawn)
    assert "finished" in result(cells[2], "text/html")
    assert result(cells[3], "text/html").startswith("<iframe")
    assert "64 completions of 4 steps" in result(cells[4])


def test_an_error_is_its_message_alone(cells: Cells) -> None:
    (error,) = [output for output in cells[-1].outputs if output.output_type == "error"]
    assert error.ename == "ConfigError"
    assert error.traceback[0].startswith("ConfigError: ")
    assert "did you mean training.num_batches?" in error.evalue
    assert len("\n".join(error.traceback).splitlines()) < 8
