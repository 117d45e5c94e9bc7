import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Write a file with a function `reward`, and return its spec."""

    def write(code: str) -> str:
        file = tmp_path / "my_rewards.py"
        file.write_text(textwrap.dedent(code), encoding="utf-8")
        return f"{file}:reward"

    return write
