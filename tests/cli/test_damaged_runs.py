"""Commands on runs whose files are damaged, or hold values that no run writes."""

import contextlib
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.test_trust import World, invoke, world, written
from tests.raising import raises

from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import RunDirectoryError
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.uploaded_rewards import make_fetch
from agent_tunix.tracking.outcome import RunStatus, read_outcome
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.training.model_card import write_card

__all__ = ["world", "written"]  # fixtures

pytestmark = pytest.mark.slow


def check_commands(*commands: list[str]) -> None:
    """Check that no command on the run ends with an error that is not the package's."""
    for command in commands:
        result = invoke(*command, "run")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


@pytest.mark.parametrize(
    "environment",
    [
        *(5, [], {"reward_fingerprint": 5}, {"reward_fingerprint": {"components": {"a": 5}}}),
        *({"reward_fingerprint": {"hash": 1, "versions": 5}}, {"context": 5, "working_directory": 5}),
    ],
)
def test_an_environment_of_wrong_types_is_an_error_of_ours(environment: Any, world: World) -> None:
    (world.run / "environment.json").write_text(json.dumps(environment))
    check_commands(["rewards", "replay"], ["rewards", "diagnose"], ["report"])
    read_request(EvaluateConfig(checkpoint_dir="run"))
    with contextlib.suppress(RunDirectoryError):
        _ = StoredRun(world.run).fingerprint


def test_nested_json_is_an_error_of_ours(world: World) -> None:
    (world.run / "environment.json").write_text("[" * 100_000)
    with raises(RunDirectoryError, "damaged_run"):
        _ = StoredRun(world.run).environment
    (world.run / "status.json").write_text("[" * 100_000)
    assert read_outcome(world.run).status is RunStatus.UNREADABLE


@pytest.mark.parametrize("entry", [5, {"id": "../../elsewhere/code"}, {"id": "rf_" + "a" * 24, "name": 5}])
def test_uploads_that_a_run_keeps_are_found_by_their_id_alone(
    entry: Any, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged list is left out, and the store is asked."""
    (world.run / "environment.json").write_text(json.dumps({"uploaded_rewards": [entry]}))
    make_fetch(world.run)
    assert "is damaged" in caplog.text
    assert "elsewhere/code.py" not in caplog.text  # no such file was looked for


@pytest.mark.parametrize(
    "changes",
    [
        {"generation.stop_strings": [""]},
        {"generation.eos_tokens": [10**30]},
        {"prompt.date": "today"},
        {"model.path": "a/" * 4000},
    ],
)
def test_values_out_of_range_are_an_error_of_generate(changes: dict[str, Any], world: World) -> None:
    world.configure(changes)
    assert invoke("generate", "run", "--prompt", "x").exit_code == 2


@pytest.mark.parametrize(
    "row",
    [
        '{"step": 1%s}' % ("0" * 400),
        '{"step": 1, "rewards/total/mean": 1%s}' % ("0" * 400),
        '{"step": 1, "rewards/total/mean": "x", "time/step_s": {}}',
        '{"step": 1, "rewards/total/mean": NaN, "time/step_s": Infinity}',
        '{"step": 1, "rewards/total/mean": 1e999, "time/step_s": 1e999}',
        '{"step": 1, "rewards/total/histogram": 1.5, "policy/loss": {"counts": [1], "edges": [0, 1]}}',
        "[" * 100_000,
    ],
)
def test_metrics_that_are_no_numbers_crash_no_command(row: str, world: World) -> None:
    (world.run / "metrics.jsonl").write_text(f"{row}\n{row}\n")
    check_commands(["report"], ["compare"], ["rewards", "diagnose"])


def test_values_of_a_parquet_file_are_not_unpickled(world: World) -> None:
    class Pickled:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, (f"touch {world.canary}",))

    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Pickled())}
    field = pa.field("question", pa.binary(), metadata=metadata)
    table = pa.table([pa.array([b"x"])], schema=pa.schema([field]))
    (world.run / "rollouts" / "step_000001-000001.parquet").unlink(missing_ok=True)
    pq.write_table(table, world.run / "rollouts" / "step_000001-000001.parquet")
    check_commands(["rewards", "replay"], ["report"], ["rewards", "diagnose"])
    assert not world.canary.exists()


def test_texts_of_a_run_are_no_markup_in_the_card_of_its_model(world: World, tmp_path: Path) -> None:
    text = "<img src=x> [a](http://b) `c`\n# d | e \x1b[2J"
    world.configure({"project_name": text, "prompt.system": text, "model.path": f"/m/{text.replace('/', '')}"})
    environment = {"reward": f"```{text}", "versions": {"jax": text}}
    (world.run / "environment.json").write_text(json.dumps(environment))
    write_card(StoredRun(world.run), tmp_path, 2, [], adapter=True)
    card = (tmp_path / "README.md").read_text()
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", card.partition("\n---\n")[2].replace("\\`", ""), flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<img|(?<!\\)\[a|^# d", outside, flags=re.MULTILINE)
    assert "\x1b" not in card
