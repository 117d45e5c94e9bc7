"""The promises that every hub keeps: pinning, caching, resuming, and the same errors for the same faults."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.data import Example, load_splits
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.pinning import pin_data
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError, ModelError
from agent_tunix.policy.files.directory import find_cached_directory, find_model_directory, pin_model
from tests.hubs import services
from tests.hubs.gsm8k import TEST, TRAIN, as_jsonl
from tests.hubs.services import TINY, WEIGHTS, DatasetService, ModelService
from tests.raising import raises

pytestmark = pytest.mark.slow

CHANGED = {**TINY, "generation_config.json": b"{}"}
MODELS: dict[str, Callable[..., ModelService]] = {
    "hub": services.hub_model,
    "kaggle": services.kaggle_model,
    "gcs": services.gcs_model,
}
ON_SERVERS: dict[str, Callable[..., DatasetService]] = {
    "dataset_hub": services.hub_dataset,
    "kaggle": services.kaggle_dataset,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> ModelService:
    service = MODELS[request.param](request.getfixturevalue(request.param))
    service.publish(TINY)
    return service


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


REMEDIES = {"failing": "try again later", "unreachable": "set model.path to a model directory on this disk"}


def test_every_file_arrives_byte_for_byte(model: ModelService) -> None:
    assert contents(find_model_directory(model.config)) == TINY


def test_a_pinned_state_is_kept(model: ModelService) -> None:
    pinned = pin_model(model.config)
    find_model_directory(pinned)
    model.publish(CHANGED)
    assert pin_model(pinned) == pinned
    assert pin_model(model.config, pinned) == pinned
    assert contents(find_model_directory(pinned)) == TINY
    assert pin_model(model.config) != pinned
    assert contents(find_model_directory(model.config)) == CHANGED


def test_a_run_keeps_the_state_of_its_own_model_alone(model: ModelService) -> None:
    other = ModelConfig(path="hf://owner/other@" + "0" * 40)
    latest = pin_model(model.config)
    assert pin_model(model.config, other) == pin_model(model.config, model.config) == latest


def test_a_cached_state_is_had_without_asking(model: ModelService) -> None:
    pinned = pin_model(model.config)
    directory = find_model_directory(pinned)
    model.server.asked.clear()
    assert find_cached_directory(pinned) == find_model_directory(pinned) == directory
    assert find_cached_directory(model.config) is None
    assert model.server.asked == []


def test_a_download_that_is_cut_off_is_taken_up_again(model: ModelService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    model.faults["cut"]()
    with raises(ModelError, model.cut_code):
        find_model_directory(model.config)
    model.faults["mended"]()
    assert contents(find_model_directory(model.config)) == TINY


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("missing", "not_found"),
        ("forbidden", "access_denied"),
        ("failing", "hub_failed"),
        ("unreachable", "hub_unreachable"),
    ],
)
def test_a_fault_has_the_same_code_on_every_hub(model: ModelService, fault: str, code: str) -> None:
    model.faults[fault]()
    with raises(ModelError, code) as caught:
        find_model_directory(model.config)
    assert str(caught.value).startswith(f"model.path={model.path}")
    assert {**REMEDIES, **model.remedies}[fault] in str(caught.value)


def test_an_unreachable_hub_leaves_the_copy(model: ModelService, caplog: pytest.LogCaptureFixture) -> None:
    directory = find_model_directory(model.config)
    model.faults["unreachable"]()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert find_model_directory(model.config) == directory
    assert "the cached copy" in caplog.text


def test_weights_in_another_form_are_refused(model: ModelService) -> None:
    files = {name: content for name, content in TINY.items() if name != WEIGHTS}
    model.publish({**files, "pytorch_model.bin": b"x"})
    with pytest.raises(ModelError, match=r"but has pytorch_model\.bin"):
        find_model_directory(model.config)
    if model.path.startswith("hf://"):
        assert model.server.downloads() == []


@pytest.fixture(params=ON_SERVERS)
def hosted(request: pytest.FixtureRequest) -> DatasetService:
    service = ON_SERVERS[request.param](request.getfixturevalue(request.param))
    service.publish(TRAIN, TEST)
    return service


@pytest.fixture(params=["dataset_hub", "kaggle", "tfds"])
def dataset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DatasetService:
    if request.param == "tfds":
        prepared: Path = request.getfixturevalue("prepared_gsm8k")
        monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(prepared))
        return services.prepared_dataset()
    service = ON_SERVERS[request.param](request.getfixturevalue(request.param))
    service.publish(TRAIN, TEST)
    return service


def columns_of(service: DatasetService, **data: object) -> list[dict[str, object]]:
    """The training rows in the columns that every hub has; the order of TensorFlow Datasets is its own."""
    config = service.config
    for key, value in data.items():
        setattr(config.data, key, value)
    rows = [{name: row.columns[name] for name in TRAIN[0]} for row in read_rows(config, "train", Dropped())]
    return sorted(rows, key=lambda row: str(row["question"]))


SORTED = sorted(TRAIN, key=lambda row: row["question"])


def seen(examples: list[Example]) -> list[tuple[str, object, object]]:
    return sorted((one.prompt, one.columns["answer"], one.columns["worked_solution"]) for one in examples)


def test_training_sees_the_same_rows_from_every_source(dataset: DatasetService, tmp_path: Path) -> None:
    for split, rows in (("train", TRAIN), ("test", TEST)):
        (tmp_path / f"{split}.jsonl").write_bytes(as_jsonl(rows))
    local = dataset.config
    local.data.source, local.data.path = "jsonl", str(tmp_path)
    local.data.train_split, local.data.test_split = "train", "test"
    (train, held_out, report), expected = load_splits(dataset.config), load_splits(local)
    assert (seen(train), seen(held_out)) == (seen(expected[0]), seen(expected[1]))
    assert (len(train), len(held_out), report.train.dropped.total) == (len(TRAIN), len(TEST), 0)
    assert dataset.config.generation.max_prompt_length == 512


def test_the_beginning_of_a_path_says_the_source(dataset: DatasetService) -> None:
    path = f"{dataset.scheme}://{dataset.config.data.path}"
    assert columns_of(dataset, source="auto", path=path) == columns_of(dataset, path=path) == SORTED


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ({"path": None}, "missing_data", "set data.path="),
        ({"path": "gsm8"}, "not_found", "data.path=gsm8 is no"),
        ({"path": "gs://owner/name"}, "missing_data", "set data.path="),
        ({"train_split": "validation"}, "missing_data", "data.train_split"),
    ],
)
def test_a_dataset_that_is_not_there(dataset: DatasetService, data: dict[str, str], code: str, words: str) -> None:
    if data == {"path": "gsm8"} and dataset.scheme != "tfds":
        data, words = {"path": "owner/none"}, "data.path=owner/none is no"
    with raises(DataError, code) as caught:
        columns_of(dataset, **data)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_pinned_revision_is_kept(hosted: DatasetService) -> None:
    pinned = pin_data(hosted.config)
    hosted.publish(TEST, TEST)
    assert pin_data(pinned) == pinned
    assert pin_data(hosted.config, pinned) == pinned
    assert columns_of(hosted, revision=pinned.data.revision) == SORTED
    assert columns_of(hosted, path=f"{pinned.data.path}@{pinned.data.revision}") == SORTED
    assert pin_data(hosted.config) != pinned
    assert columns_of(hosted) == TEST


def test_a_second_reading_downloads_nothing(hosted: DatasetService) -> None:
    columns_of(hosted)
    before = hosted.downloads()
    assert columns_of(hosted) == SORTED
    assert hosted.downloads() == before > 0


@pytest.mark.parametrize(("fault", "code"), [("forbidden", "access_denied"), ("unreachable", "hub_unreachable")])
def test_rows_that_cannot_be_had(hosted: DatasetService, fault: str, code: str) -> None:
    hosted.faults[fault]()
    with raises(DataError, code) as caught:
        columns_of(hosted)
    assert ("set data.path to files on this disk" if fault == "unreachable" else "licence") in str(caught.value)


def test_an_unreachable_hub_leaves_the_rows_that_were_had(
    hosted: DatasetService, caplog: pytest.LogCaptureFixture
) -> None:
    columns_of(hosted)
    hosted.faults["unreachable"]()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert columns_of(hosted) == SORTED
    assert "the cached copy" in caplog.text
