"""The directories of workers: measured, and removed whatever is in them."""

import logging
import os
from pathlib import Path

import pytest

from agent_tunix.execution.isolation import scratch
from tests.execution.users import run_as, users

pytestmark = pytest.mark.slow


def test_a_directory_is_measured_by_size_number_and_depth(tmp_path: Path) -> None:
    assert not scratch.holds_more(str(tmp_path), 1 << 20, 10)
    (tmp_path / "large").write_bytes(b"x" * (2 << 20))
    assert scratch.holds_more(str(tmp_path), 1 << 20, 10)
    assert not scratch.holds_more(str(tmp_path), 4 << 20, 10)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert scratch.holds_more(str(tmp_path), 4 << 20, 10)


def test_one_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.getcwd()
    try:
        os.chdir(top)
        for _ in range(1200):  # deeper than Python recurses
            os.mkdir("d" * 10)
            os.chdir("d" * 10)
        Path("file").touch()
    finally:
        os.chdir(here)
    assert scratch.holds_more(str(top), 1 << 30, 1 << 30)
    scratch.remove(str(top))
    assert not top.exists()


def test_links_are_not_followed_and_modes_do_not_matter(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    top = tmp_path / "top"
    (top / "inner" / "locked").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "inner" / "locked").chmod(0)
    (top / "inner").chmod(0)
    scratch.remove(str(top))
    assert not top.exists()
    assert (kept / "file").exists()


_REMOVE = """
import os, sys
from agent_tunix.execution.isolation import scratch
top = os.path.join(sys.argv[1], "top")
os.makedirs(os.path.join(top, "a", "b", "c"))
for name in ("a/b/c", "a/b", "a"):
    os.chmod(os.path.join(top, name), 0)
scratch.remove(top)
print(os.path.exists(top))
"""


@pytest.mark.parametrize("user", users())
def test_directories_without_any_rights_are_removed_by_an_ordinary_user_too(user: str) -> None:
    assert run_as(user, "-c", _REMOVE, "{directory}").strip() == "False"


def test_what_stays_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scratch.remove(str(tmp_path / "none"))
    assert "could not be removed" in caplog.text
