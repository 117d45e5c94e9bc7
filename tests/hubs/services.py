"""The hubs as the contract sees them: something is published there, and something goes wrong."""

import abc
import copy
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.policy.directory import EMBEDDED_MODEL
from tests.hubs.gsm8k import Rows, as_csv, as_parquet
from tests.hubs.loopback import Files
from tests.hubs.loopback_gcs import LoopbackGcs
from tests.hubs.loopback_hub import LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle, Resource

TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
WEIGHTS = "model.safetensors"


class ModelService(abc.ABC):
    """One model of a hub.

    Attributes:
        path: What stands in `model.path`.
        remedies: Fault → what its error tells to do.
        cut_code: The code of the error for a download that is cut off every time.
    """

    path: ClassVar[str]
    remedies: ClassVar[dict[str, str]]
    cut_code: ClassVar[str] = "incomplete_download"

    def __init__(self, server: Any) -> None:
        self.server = server

    @property
    def config(self) -> ModelConfig:
        """The configuration of a run that names the model without a revision."""
        return ModelConfig(path=self.path)

    @property
    def asked(self) -> Sequence[object]:
        """The requests that came."""
        return list(self.server.asked)

    def unreachable(self) -> None:
        """Let no connection be made any more."""
        self.server.close()

    @abc.abstractmethod
    def publish(self, files: Files) -> None:
        """Make a new state with these files alone."""

    @abc.abstractmethod
    def missing(self) -> None:
        """Take the model from the hub."""

    @abc.abstractmethod
    def forbidden(self) -> None:
        """Let nobody read the model who has not accepted its licence."""

    @abc.abstractmethod
    def failing(self) -> None:
        """Answer every request with an error of the server."""

    @abc.abstractmethod
    def cut(self) -> None:
        """Let the weights never arrive whole."""

    @abc.abstractmethod
    def mend(self) -> None:
        """Undo `cut`."""


class HuggingFaceModel(ModelService):
    """A model of the Hugging Face hub."""

    path = "hf://owner/tiny"
    cut_code = "hub_unreachable"
    remedies: ClassVar[dict[str, str]] = {
        "missing": "set HF_TOKEN",
        "forbidden": "accept its licence at http://127.0.0.1",
        "failing": "try again later",
        "unreachable": "set model.path to a model directory on this disk",
    }
    server: LoopbackHub

    def publish(self, files: Files) -> None:
        if "owner/tiny" not in self.server.models:
            self.server.add_model("owner/tiny", {})
        repository = self.server.models["owner/tiny"]
        repository.commits[repository.commit(files)] = dict(files)

    def missing(self) -> None:
        self.server.models.clear()

    def forbidden(self) -> None:
        self.server.models["owner/tiny"].gated = True

    def failing(self) -> None:
        self.server.status = 503

    def cut(self) -> None:
        self.server.models["owner/tiny"].cuts[WEIGHTS] = [100_000] * 20

    def mend(self) -> None:
        self.server.models["owner/tiny"].cuts.clear()


class KaggleModel(ModelService):
    """A model's variation on Kaggle."""

    path = "kaggle://owner/tiny/transformers/base"
    remedies: ClassVar[dict[str, str]] = {
        "missing": "https://www.kaggle.com/models/owner/tiny/transformers/base",
        "forbidden": "KAGGLE_USERNAME and KAGGLE_KEY",
        "failing": "try again later",
        "unreachable": "set model.path to a model directory on this disk",
    }
    server: LoopbackKaggle

    @property
    def resource(self) -> Resource:
        """The variation, which is made where there is none."""
        return self.server.resources.setdefault("owner/tiny/transformers/base", Resource())

    def publish(self, files: Files) -> None:
        self.resource.versions.append(files)

    def missing(self) -> None:
        self.server.resources.clear()

    def forbidden(self) -> None:
        self.resource.status = 403

    def failing(self) -> None:
        self.resource.status = 503

    def cut(self) -> None:
        self.resource.cut_after = 1000

    def mend(self) -> None:
        self.resource.cut_after = None


class GcsModel(ModelService):
    """A directory of a bucket of Google Cloud Storage."""

    path = "gs://bucket/models/tiny"
    remedies: ClassVar[dict[str, str]] = {
        "missing": "correct the bucket and the directory",
        "forbidden": "gcloud auth application-default login",
        "failing": "try again later",
        "unreachable": "set model.path to a model directory on this disk",
    }
    server: LoopbackGcs

    def publish(self, files: Files) -> None:
        self.server.buckets["bucket"] = {f"models/tiny/{name}": content for name, content in files.items()}

    def missing(self) -> None:
        self.server.buckets.clear()

    def forbidden(self) -> None:
        self.server.status = 403

    def failing(self) -> None:
        self.server.status = 501  # 503 is asked again, and counts as unreachable then.

    def cut(self) -> None:
        self.server.damaged.add(f"models/tiny/{WEIGHTS}")

    def mend(self) -> None:
        self.server.damaged.clear()


@functools.cache
def _composed(choice: str) -> Config:
    return compose_overrides([f"data={choice}"])


class DatasetService(abc.ABC):
    """GSM8K on a hub, where a shipped choice of `data` looks for it.

    Attributes:
        choice: The choice of `data`.
        name: What the hub calls the dataset.
        scheme: How a path begins that says the source.
    """

    choice: ClassVar[str]
    name: ClassVar[str]
    scheme: ClassVar[str]

    @property
    def config(self) -> Config:
        """The configuration of a run that reads it."""
        return copy.deepcopy(_composed(self.choice))

    @abc.abstractmethod
    def publish(self, train: Rows, test: Rows) -> None:
        """Make a new state with these rows."""


class HuggingFaceDataset(DatasetService):
    """A subset of a dataset of the Hugging Face hub."""

    choice, name, scheme = "gsm8k_hf", "openai/gsm8k", "hf"

    def __init__(self, server: LoopbackHub) -> None:
        self.server = server

    def publish(self, train: Rows, test: Rows) -> None:
        splits = "[{split: train, path: a.parquet}, {split: test, path: b.parquet}]"
        card = f"---\nconfigs:\n- {{config_name: main, data_files: {splits}}}\n---\n".encode()
        files = {"README.md": card, "a.parquet": as_parquet(train), "b.parquet": as_parquet(test)}
        if self.name in self.server.datasets:
            self.server.datasets[self.name].commit(files)
        else:
            self.server.add_dataset(self.name, files)

    def forbidden(self) -> None:
        self.server.datasets[self.name].gated = True

    def downloads(self) -> int:
        """Count the files of rows that were asked for."""
        return sum(name.endswith(".parquet") for name in self.server.downloads())


class KaggleDataset(DatasetService):
    """A dataset of Kaggle in CSV files."""

    choice, name, scheme = "gsm8k_kaggle", "thedevastator/grade-school-math-8k-q-a", "kaggle"

    def __init__(self, server: LoopbackKaggle) -> None:
        self.server = server
        self.resource = Resource()

    def publish(self, train: Rows, test: Rows) -> None:
        self.server.resources[self.name] = self.resource
        self.resource.versions.append({"main_train.csv": as_csv(train), "main_test.csv": as_csv(test), "notes": b"x"})

    def forbidden(self) -> None:
        self.resource.status = 403

    def downloads(self) -> int:
        """Count the archives that were asked for."""
        return self.server.asked.count("DownloadDataset")


class TfdsDataset(DatasetService):
    """A dataset that TensorFlow Datasets prepared in its directory, once for all tests."""

    choice, name, scheme = "gsm8k_tfds", "gsm8k", "tfds"

    def publish(self, train: Rows, test: Rows) -> None:
        pass
