import itertools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config
from agent_tunix.service.runs.files import open_plain, plain_status
from agent_tunix.service.runs.view import summarise_run

_TRIES = 3000


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A run in an inner directory, and a directory elsewhere with files of the same names."""
    run, elsewhere = tmp_path / "runs" / "team" / "run", tmp_path / "elsewhere"
    for directory, word in ((run, "own"), (elsewhere / "run", "secret")):
        directory.mkdir(parents=True)
        (directory / "config.yaml").write_text(to_yaml(Config(project_name=word)))
        (directory / "metrics.jsonl").write_text(
            json.dumps({"step": 1, "rewards/total/mean": int(word == "secret")}) + "\n"
        )
        (directory / "status.json").write_text(json.dumps({"status": "failed", "overrides": [], "detail": word}))
    return run.resolve(), elsewhere.resolve()


@contextmanager
def swapping(inner: Path, elsewhere: Path) -> Iterator[None]:
    """Put a link in the place of a directory and take it away, again and again, while the block runs."""
    aside, link = inner.with_name("aside"), inner.with_name("link")
    link.symlink_to(elsewhere)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(inner, aside)
            os.rename(link, inner)
            os.rename(inner, link)
            os.rename(aside, inner)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_link_on_the_way_is_not_followed(places: tuple[Path, Path]) -> None:
    run, elsewhere = places
    with pytest.raises(OSError, match="resolved"):
        open_plain(run / ".." / "run" / "config.yaml")
    os.rename(run.parent, run.parent.with_name("aside"))
    run.parent.symlink_to(elsewhere)
    assert plain_status(run / "config.yaml") is None
    with pytest.raises(NotADirectoryError):
        open_plain(run / "config.yaml")


@pytest.mark.slow
def test_a_directory_that_is_swapped_for_a_link_again_and_again_never_leads_out(places: tuple[Path, Path]) -> None:
    run, elsewhere = places
    read: dict[str, int] = {}
    with swapping(run.parent, elsewhere):
        for _ in itertools.repeat(None, _TRIES):
            try:
                with open_plain(run / "config.yaml") as file:
                    content = file.read()
            except OSError:
                content = b"refused"
            word = "secret" if b"secret" in content else "refused" if content == b"refused" else "own"
            read[word] = read.get(word, 0) + 1
            summary = summarise_run("run_x", "run", run, 0)
            assert "secret" not in summary.detail
            assert summary.reward != 1
    assert "secret" not in read
    assert read["own"] > 0
    assert read["refused"] > 0
