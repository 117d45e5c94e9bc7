"""Fixtures that point the libraries of this process at a hub on the loopback, for a conftest.py or test to import."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubs.loopback_hub import LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle

# Read from the environment where the library is imported, which may have been long ago.
_CACHES = {"HF_HOME": "", "HF_HUB_CACHE": "hub", "HF_ASSETS_CACHE": "assets", "HF_TOKEN_PATH": "token"}


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A hub with nothing on it, and an empty cache; no token is set."""
    server = LoopbackHub()
    use_hub(server, tmp_path_factory.mktemp("hf_home"), monkeypatch)
    yield server
    server.close()


@pytest.fixture
def dataset_hub(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> LoopbackHub:
    """The same hub for the library `datasets`, which takes a second to import and keeps settings of its own."""
    import datasets

    home = Path(os.environ["HF_HOME"])
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(home / "modules"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    return hub


def use_hub(hub: LoopbackHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point `huggingface_hub` and `datasets` at a hub and a cache, in this process and those that it starts."""
    for name, value in hub.environment(home).items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name, below in _CACHES.items():
        monkeypatch.setattr(constants, name, str(home / below))
    disable_progress_bars()


@pytest.fixture
def kaggle(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackKaggle]:
    """Kaggle with nothing on it, and an empty cache; nobody is logged in."""
    server = LoopbackKaggle()
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment(tmp_path_factory.mktemp("kaggle")).items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()
