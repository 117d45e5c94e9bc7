"""The hubs as the contract sees them: something is published there, and something goes wrong."""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from tests.hubs.gsm8k import Rows, as_csv, as_parquet
from tests.hubs.loopback import Files
from tests.hubs.loopback_gcs import LoopbackGcs
from tests.hubs.loopback_hub import LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle, Resource

TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
WEIGHTS = "model.safetensors"
KAGGLE_MODEL = "owner/tiny/transformers/base"

Fault = Callable[[], object]


@dataclass(frozen=True)
class ModelService:
    """One model of a hub.

    Attributes:
        path: What stands in `model.path`.
        server: The hub; its `asked` has the requests that came.
        publish: Make a new state with these files alone.
        faults: What may go wrong: `missing`, `forbidden`, `failing`, `unreachable`, `cut`, and `mended` after it.
        remedies: Fault → what its error tells to do.
        cut_code: The code of the error for a download that is cut off every time.
    """

    path: str
    server: Any
    publish: Callable[[Files], None]
    faults: Mapping[str, Fault]
    remedies: Mapping[str, str]
    cut_code: str = "incomplete_download"

    @property
    def config(self) -> ModelConfig:
        """The configuration of a run that names the model without a revision."""
        return ModelConfig(path=self.path)


def hub_model(hub: LoopbackHub) -> ModelService:
    repository = hub.add_model("owner/tiny", {})

    def publish(files: Files) -> None:
        repository.commits[repository.commit(files)] = dict(files)

    return ModelService(
        path="hf://owner/tiny",
        server=hub,
        publish=publish,
        faults={
            "missing": hub.models.clear,
            "forbidden": lambda: setattr(repository, "gated", True),
            "failing": lambda: setattr(hub, "status", 503),
            "unreachable": hub.close,
            "cut": lambda: repository.cuts.update({WEIGHTS: [100_000] * 20}),
            "mended": repository.cuts.clear,
        },
        remedies={"missing": "set HF_TOKEN", "forbidden": f"accept its licence at {hub.url}/owner/tiny"},
        cut_code="hub_unreachable",
    )


def kaggle_model(kaggle: LoopbackKaggle) -> ModelService:
    resource = kaggle.resources[KAGGLE_MODEL] = Resource()
    page = f"https://www.kaggle.com/models/{KAGGLE_MODEL}"
    return ModelService(
        path=f"kaggle://{KAGGLE_MODEL}",
        server=kaggle,
        publish=resource.versions.append,
        faults={
            "missing": kaggle.resources.clear,
            "forbidden": lambda: setattr(resource, "status", 403),
            "failing": lambda: setattr(resource, "status", 503),
            "unreachable": kaggle.close,
            "cut": lambda: setattr(resource, "cut_after", 1000),
            "mended": lambda: setattr(resource, "cut_after", None),
        },
        remedies={"missing": page, "forbidden": "KAGGLE_USERNAME and KAGGLE_KEY"},
    )


def gcs_model(gcs: LoopbackGcs) -> ModelService:
    def publish(files: Files) -> None:
        gcs.buckets["bucket"] = {f"models/tiny/{name}": content for name, content in files.items()}

    return ModelService(
        path="gs://bucket/models/tiny",
        server=gcs,
        publish=publish,
        faults={
            "missing": gcs.buckets.clear,
            "forbidden": lambda: setattr(gcs, "status", 403),
            "failing": lambda: setattr(gcs, "status", 501),  # After 503 the client asks again.
            "unreachable": gcs.close,
            "cut": lambda: gcs.damaged.add(f"models/tiny/{WEIGHTS}"),
            "mended": gcs.damaged.clear,
        },
        remedies={
            "missing": "correct the bucket and the directory",
            "forbidden": "gcloud auth application-default login",
        },
    )


@functools.cache
def _composed(choice: str) -> Config:
    return compose_overrides([f"data={choice}"])


@dataclass(frozen=True)
class DatasetService:
    """GSM8K where a shipped choice of `data` looks for it.

    Attributes:
        choice: The choice of `data`.
        scheme: How a path begins that says the source.
        publish: Make a new state with these training and held-out rows.
        faults: What may go wrong: `forbidden`, `unreachable`.
        downloads: Count the files of rows that were asked for.
    """

    choice: str
    scheme: str
    publish: Callable[[Rows, Rows], None]
    faults: Mapping[str, Fault]
    downloads: Callable[[], int]

    @property
    def config(self) -> Config:
        """The configuration of a run that reads it."""
        return copy.deepcopy(_composed(self.choice))


def hub_dataset(hub: LoopbackHub) -> DatasetService:
    repository = hub.add_dataset("openai/gsm8k", {})

    def publish(train: Rows, test: Rows) -> None:
        splits = "[{split: train, path: a.parquet}, {split: test, path: b.parquet}]"
        card = f"---\nconfigs:\n- {{config_name: main, data_files: {splits}}}\n---\n".encode()
        repository.commit({"README.md": card, "a.parquet": as_parquet(train), "b.parquet": as_parquet(test)})

    return DatasetService(
        choice="gsm8k_hf",
        scheme="hf",
        publish=publish,
        faults={"forbidden": lambda: setattr(repository, "gated", True), "unreachable": hub.close},
        downloads=lambda: sum(name.endswith(".parquet") for name in hub.downloads()),
    )


def kaggle_dataset(kaggle: LoopbackKaggle) -> DatasetService:
    resource = kaggle.resources["thedevastator/grade-school-math-8k-q-a"] = Resource()

    def publish(train: Rows, test: Rows) -> None:
        resource.versions.append({"main_train.csv": as_csv(train), "main_test.csv": as_csv(test), "notes": b"x"})

    return DatasetService(
        choice="gsm8k_kaggle",
        scheme="kaggle",
        publish=publish,
        faults={"forbidden": lambda: setattr(resource, "status", 403), "unreachable": kaggle.close},
        downloads=lambda: kaggle.asked.count("DownloadDataset"),
    )


def prepared_dataset() -> DatasetService:
    return DatasetService("gsm8k_tfds", "tfds", lambda train, test: None, {}, lambda: 0)
