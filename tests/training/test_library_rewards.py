"""Runs on files and rows of other libraries, unedited."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.training.verification import read_rows
from tests.rewards.gallery.test_libraries import FILES, ROW, identify, spec_of
from tests.small_run import SMALL_RUN
from tests.training.support import train_run

PROGRAM = Path(__file__).parents[2] / "run_training.py"
GALLERY = Path(__file__).parents[1] / "rewards" / "gallery"
SCORE = GALLERY / "verl" / "with_parts.py"
NUM_STEPS = 1


@pytest.mark.slow
def test_verls_gsm8k_trains_with_one_command(tmp_path: Path) -> None:
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"What is {n} + {n}? End with ####."}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
            "extra_info": {"split": "train", "index": n, "answer": f"#### {2 * n}", "question": f"What is {n} + {n}?"},
        }
        for n in range(48)
    ]
    for split, part in (("train", rows[:32]), ("test", rows[32:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{split}.parquet")
    command = [sys.executable, str(PROGRAM), *SMALL_RUN, f"training.num_batches={NUM_STEPS}", f"data.path={tmp_path}"]
    command += [f"training.reward_function={SCORE}:compute_score", f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = read_rows(tmp_path / "run")
    trained = [row for row in steps if row.get("rewards/total/mean") is not None and row["step"] > 0]
    assert len(trained) == NUM_STEPS
    assert {row.get("rewards/outcomes/error", 0) for row in trained} == {0}
    assert "the rows have verl's layout" in (tmp_path / "run" / "train.log").read_text()
    assert steps[0]["eval/accuracy"] is not None


@pytest.mark.slow
def test_five_files_of_each_library_train_together(tmp_path: Path) -> None:
    rows = [
        {
            **ROW,
            "question": f"What is {n} plus 2?",
            "answer": str(n + 2),
            "label": str(n + 2),
            "solution": f"<answer>{n + 2}</answer>",
            "reward_model": {"style": "rule", "ground_truth": str(n + 2)},
        }
        for n in range(64)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {identify(file).replace("/", "-"): spec_of(file) for file in FILES}
    # And one of each convention of ours.
    own = ("classes", "environment", "miles", "plain", "trl")
    names |= {name: f"{sorted((GALLERY / name).glob('*.py'))[-1]}:reward" for name in own}
    components = ", ".join(f"{name}: {{function: '{spec}', weight: 0.1}}" for name, spec in names.items())
    steps = train_run(
        tmp_path / "run",
        f"training.num_batches={NUM_STEPS}",
        f"data.path={tmp_path / 'rows.jsonl'}",
        "training.train_fraction=0.75",
        "evaluation.num_samples=0",
        "rewards.execution=process",
        "rewards.num_workers=2",
        f"training.reward_function={{{components}}}",
    )
    trained = [row for row in steps if row["step"] > 0]
    assert len(trained) == NUM_STEPS
    for name in names:
        assert [row[f"rewards/{name}/mean"] is not None for row in trained] == [True] * NUM_STEPS, name
        assert [row.get(f"rewards/{name}/outcomes/error", 0) for row in trained] == [0] * NUM_STEPS, name


@pytest.mark.slow
def test_a_reference_that_is_no_text_trains_and_accuracy_is_said_to_be_unmeasured(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} plus 2?", "label": {"value": n + 2, "unit": None}} for n in range(64)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text(
        "def reward(response, answer):\n    return float(str(answer['value']) in response)\n"
    )
    steps = train_run(
        tmp_path / "run",
        f"training.num_batches={NUM_STEPS}",
        f"data.path={tmp_path / 'rows.jsonl'}",
        "data.answer_column=label",
        "training.train_fraction=0.75",
        f"training.reward_function={tmp_path / 'mine.py'}:reward",
    )
    assert len([row for row in steps if row["step"] > 0]) == NUM_STEPS
    assert steps[0].get("eval/accuracy") is None
    log = (tmp_path / "run" / "train.log").read_text()
    assert "eval/accuracy is n/a" in log
    assert "is not a number or a formula" in log
