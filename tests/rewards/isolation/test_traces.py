"""Of what uploaded code writes where a traceback is expected, nothing leads to another file."""

from pathlib import Path

import pytest

from agent_tunix.rewards.execution.tasks import last_frame
from agent_tunix.rewards.recipe import RewardRecipe
from tests.rewards.isolation.uploads import resolve_uploads, upload

SOURCE = upload("def reward(completions, **kwargs):\n    return [1.0]\n")
RECIPE = RewardRecipe(SOURCE.id, "reward", uploaded=SOURCE)


def frame(file: object, line: str) -> str:
    return f'Current thread 0x0001 (most recent call first):\n  File "{file}", line {line} in reward\n'


def test_its_own_line_is_shown() -> None:
    resolve_uploads(SOURCE)
    assert last_frame(frame(SOURCE.file, "2"), RECIPE) == f" ({SOURCE.file}:2: return [1.0])"


@pytest.mark.parametrize("line", ["1", "9" * 100_000])
def test_no_other_file_is_read(line: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("do not read")
    assert last_frame(frame(secret, line), RECIPE) == ""
    assert last_frame(frame(SOURCE.file, line) + frame(secret, "1"), RECIPE).count("do not read") == 0
