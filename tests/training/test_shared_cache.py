"""A cache of compiled programs that others can write to is not used: its entries run code as they are read."""

import logging
import os
from pathlib import Path

import pytest

from agent_tunix.startup.program_cache import prepare_cache, why_others_can_write


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)


def used() -> str | None:
    return os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
@pytest.mark.parametrize("where", ["itself", "above"])
def test_a_directory_that_others_can_write_to_is_refused_with_a_warning(
    mode: int, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    above = tmp_path / "above"
    prepare_cache(str(above / "cache"))
    directory = Path(str(used()))
    open_to_all = directory if where == "itself" else above
    open_to_all.chmod(mode)
    is_harmless = where == "above" and mode == 0o1777  # nobody may replace what belongs to another there
    with caplog.at_level(logging.WARNING, "agent_tunix.run"):
        prepare_cache(str(above / "cache"))
    assert (used() is not None) == is_harmless
    assert (str(open_to_all) in caplog.text) != is_harmless


def test_a_directory_of_the_environment_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    prepare_cache("auto")
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path)
    tmp_path.chmod(0o777)
    prepare_cache("auto")
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert "chmod go-w" in caplog.text


def test_directories_that_are_made_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        prepare_cache(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert used() is not None
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    assert why_others_can_write(tmp_path) is None
    os.chown(tmp_path, 65534, 65534)
    assert "another user" in str(why_others_can_write(tmp_path))
