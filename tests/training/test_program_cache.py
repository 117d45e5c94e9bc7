"""Compiled programs on the disk."""

import importlib.util
import os
import zlib
from pathlib import Path

import pytest

from agent_tunix.startup import program_cache
from agent_tunix.startup.program_cache import cache_directory, prepare_cache, processor_kind

DIRECTORY, MIN_COMPILE = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (DIRECTORY, MIN_COMPILE):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)


def write(directory: Path, name: str, content: bytes, age_s: float = 0.0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-cache"
    path.write_bytes(content)
    then = path.stat().st_mtime - age_s
    os.utime(path, (then, then))
    return path


def test_every_program_is_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare_cache("auto")
    kept = Path(os.environ[DIRECTORY])
    assert kept.is_dir()
    assert kept.parent == tmp_path / "agent_tunix" / "jax"
    assert float(os.environ[MIN_COMPILE]) == 0.0


def test_another_kind_of_processor_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cache_directory("/shared")
    monkeypatch.setattr(Path, "read_text", lambda self: "flags\t\t: fpu avx512f\n")
    assert cache_directory("/shared") != here
    assert cache_directory("/shared").parent == here.parent


def test_a_bucket_is_left_to_jax_if_its_library_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    prepare_cache("gs://bucket/programs/")
    assert DIRECTORY not in os.environ
    assert "pip install gcsfs" in caplog.text
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    prepare_cache("gs://bucket/programs/")
    assert os.environ[DIRECTORY] == f"gs://bucket/programs/{processor_kind()}"


def test_a_directory_that_cannot_be_made_is_told_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    prepare_cache(str(tmp_path / "file"))
    assert DIRECTORY not in os.environ
    assert "distributed.compilation_cache=null" in caplog.text


def test_on_a_full_disk_programs_are_read_and_none_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "_MIN_FREE_BYTES", 1 << 62)
    prepare_cache(str(tmp_path))
    assert os.environ[DIRECTORY] == str(cache_directory(str(tmp_path)))
    assert float(os.environ[MIN_COMPILE]) > 1e6


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", fail)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    prepare_cache("auto")
    assert DIRECTORY not in os.environ
    assert "distributed.compilation_cache=DIR" in caplog.text


def test_the_least_recently_used_programs_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = cache_directory(str(tmp_path))
    paths = [write(directory, f"p{number}", zlib.compress(os.urandom(1000)), 100 - number) for number in range(10)]
    monkeypatch.setattr(program_cache, "MAX_BYTES", 5000)
    prepare_cache(str(tmp_path))
    assert [path.exists() for path in paths] == [False] * 7 + [True] * 3


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        (b"", False),
        (zlib.compress(b"a program" * 99)[:-7], False),
        (b"\x78\x9cnonsense", False),
        (b"\x28\xb5\x2f\xfd packed in another way", True),
    ],
)
def test_part_of_a_program_is_removed(content: bytes, stays: bool, tmp_path: Path) -> None:
    path = write(cache_directory(str(tmp_path)), "half", content)
    prepare_cache(str(tmp_path))
    assert path.exists() is stays


def test_a_whole_program_stays_and_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(cache_directory(str(tmp_path)), "whole", zlib.compress(b"a program"), age_s=10)
    prepare_cache(str(tmp_path))
    monkeypatch.setattr(program_cache, "_is_whole", lambda program: False)
    monkeypatch.delenv(DIRECTORY)
    prepare_cache(str(tmp_path))
    assert path.exists()


def test_a_directory_of_the_environment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    prepare_cache("auto")
    assert os.environ[DIRECTORY] == str(tmp_path)
    assert MIN_COMPILE not in os.environ
