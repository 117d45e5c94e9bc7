"""What a run's config.yaml says of places: the same from whatever directory it is read."""

from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.training.run_directory import with_absolute_places


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-1.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "source", "expected"),
    [
        ("rows", "jsonl", "{here}/rows"),
        ("./rows/../rows", "auto", "{here}/rows"),
        ("rows/part-*.jsonl", "auto", "{here}/rows/part-*.jsonl"),
        ("rows", "huggingface", "rows"),
        ("owner/name", "auto", "owner/name"),
        ("hf://owner/name", "auto", "hf://owner/name"),
        (None, "synthetic", None),
    ],
)
def test_data_is_named_from_the_root_where_it_lies_here(
    given: str | None, source: str, expected: str | None, here: Path
) -> None:
    config = Config()
    config.data.path, config.data.source = given, source
    config.data.mixture = {"one": {"path": given, "weight": 2.0}, "other": {"weight": 1.0}}
    found = with_absolute_places(config)
    wanted = None if expected is None else expected.format(here=here)
    assert found.data.path == wanted
    assert found.data.mixture == {"one": {"path": wanted, "weight": 2.0}, "other": {"weight": 1.0}}
    assert config.data.path == given


def test_a_model_that_is_a_name_on_a_hub_keeps_it(here: Path) -> None:
    config = Config()
    config.model.path = "owner/name"
    assert with_absolute_places(config).model.path == "owner/name"
    config.model.path = "rows"
    assert with_absolute_places(config).model.path == str(here / "rows")


def test_where_a_run_leaves_things_need_not_exist(here: Path) -> None:
    config = Config()
    config.training.checkpoint_dir, config.training.test_data_dir = "new", "rows"
    found = with_absolute_places(config).training
    assert (found.checkpoint_dir, found.test_data_dir) == (str(here / "new"), str(here / "rows"))
