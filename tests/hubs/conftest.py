"""Fixtures that point the libraries of this process at servers on the loopback."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubs.gsm8k import TEST, TRAIN, as_in_tfds
from tests.hubs.loopback_gcs import LoopbackGcs
from tests.hubs.loopback_hub import LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle
from tests.hubs.prepared import prepare

_QUIET = dict.fromkeys(("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
_CACHES = {
    "HF_HOME": "",
    "HF_HUB_CACHE": "hub",
    "HF_ASSETS_CACHE": "assets",
    "HF_TOKEN_PATH": "token",
}  # Read where the library is imported.


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A Hugging Face hub with nothing on it, and an empty cache; no token is set."""
    server = LoopbackHub()
    home = tmp_path_factory.mktemp("hf_home")
    for name, value in {"HF_ENDPOINT": server.url, "HF_HOME": str(home), **_QUIET}.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars

    resolve = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", resolve)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name, below in _CACHES.items():
        monkeypatch.setattr(constants, name, str(home / below))
    disable_progress_bars()
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


@pytest.fixture
def kaggle(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackKaggle]:
    """Kaggle with nothing on it, and an empty cache; nobody is logged in."""
    server = LoopbackKaggle()
    cache = tmp_path_factory.mktemp("kaggle")
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr("kagglehub.clients.get_user_agent", lambda: "tests")  # It reads the source of all callers.
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "LOCALHOST")
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(cache))
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(cache / "no_account"))
    yield server
    server.close()


@pytest.fixture
def gcs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackGcs]:
    """Google Cloud Storage with nothing in it, and an empty cache."""
    pytest.importorskip("google.cloud.storage", reason="needs the extra gcs")
    server = LoopbackGcs()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path_factory.mktemp("gcs")))
    monkeypatch.setattr("agent_tunix.hubs.google_storage.RETRY_S", 0.2)
    yield server
    server.close()


@pytest.fixture(scope="session")
def prepared_gsm8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which TensorFlow Datasets prepared a few rows of GSM8K."""
    tfds = pytest.importorskip("tensorflow_datasets")
    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    features = dict.fromkeys(("question", "answer", "annotation", "short_answer"), tfds.features.Text())
    prepare(directory, "gsm8k", features, {"train": as_in_tfds(TRAIN), "test": as_in_tfds(TEST)})
    return directory
