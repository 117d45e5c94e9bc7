"""Files of the working directory that commands use or leave alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_tunix.config.working_directory import load_env_file

LEAVES_A_FILE = "import pathlib\npathlib.Path('used').touch()\n"


def test_an_env_file_sets_what_the_environment_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEMO_KEY", "of the shell")
    monkeypatch.setenv("DEMO_URL", "")  # restored after the test
    monkeypatch.delenv("DEMO_URL")
    Path(".env").write_text("DEMO_KEY=of the file\nDEMO_URL=http://127.0.0.1\n")
    load_env_file()
    assert (os.environ["DEMO_KEY"], os.environ["DEMO_URL"]) == ("of the shell", "http://127.0.0.1")


@pytest.mark.slow
def test_modules_of_the_working_directory_are_not_those_of_workers(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(LEAVES_A_FILE)
    command = [sys.executable, "-P", "-m", "agent_tunix", "rewards", "try", "math"]
    command += ["--response", "\\boxed{\\int_0^1 x dx}", "--answer", "\\frac{1}{2}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "used").exists()
