"""A run whose model lies on a hub: what it records, that it goes on with the same commit, and when nothing is asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import agent_tunix
from agent_tunix.config.compose import compose_overrides, from_yaml
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.training.checkpoint_evaluation import evaluate_checkpoint
from agent_tunix.training.evaluation_request import read_request
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from tests.hubs.gsm8k import as_jsonl
from tests.hubs.loopback_hub import LoopbackHub
from tests.small_run import SMALL_RUN

REPO = "owner/tiny"
TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
SETTINGS = [*SMALL_RUN, f"model.path=hf://{REPO}", "tracking.progress=none"]


def run(root: Path, *overrides: str) -> None:
    train(preflight(compose_overrides([*SETTINGS, *overrides]), root), root)


def sums(count: int, of: int) -> bytes:
    return as_jsonl([{"question": f"What is {n} plus {of}?", "answer": f"#### {n + of}"} for n in range(count)])


def test_a_run_records_the_commits_and_goes_on_with_them(dataset_hub: LoopbackHub, tmp_path: Path) -> None:
    hub = dataset_hub
    repository = hub.add_model(REPO, TINY)
    rows = hub.add_dataset("owner/sums", {"train.jsonl": sums(64, of=1), "test.jsonl": sums(16, of=2)})
    data = ["data.source=huggingface", "data.path=owner/sums"]
    first, first_rows = repository.head, rows.head
    root = tmp_path / "run"
    run(root, *data)
    pinned = f"hf://{REPO}@{first}"
    assert from_yaml(root / "config.yaml").model.path == pinned
    model = json.loads((root / "environment.json").read_text())["model"]
    assert model["path"] == pinned
    assert Path(model["directory"]).name == first
    assert f"hf://{REPO}@{first}" in (root / "train.log").read_text()

    assert from_yaml(root / "config.yaml").data.revision == first_rows

    repository.commit({"model.safetensors": b"of another shape"})
    rows.commit({"train.jsonl": sums(64, of=3)})
    run(root, *data, "training.resume=true")
    assert from_yaml(root / "config.yaml").model.path == pinned
    assert from_yaml(root / "config.yaml").data.revision == first_rows
    assert "the configuration is not the one" not in (root / "train.log").read_text()

    hub.close()
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(root), num_samples=16)))
    assert list(root.glob("evaluation_step_*.json"))


def test_printing_the_configuration_asks_no_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(agent_tunix.__file__).parents[1])}
    command = [sys.executable, "-m", "agent_tunix", "train", *SETTINGS, "--cfg", "job"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert f"path: hf://{REPO}" in done.stdout
    assert hub.asked == []


def test_checking_a_configuration_asks_no_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    preflight(compose_overrides(SETTINGS), tmp_path)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("hf://owner", r"should be hf://owner/name or hf://owner/name@revision"),
        ("hf://owner/name/deeper", r"should be hf://owner/name"),
        ("https://huggingface.co/owner/name/tree/main", r"is not an address of a model; write hf://owner/name"),
        ("s3://bucket/name", r"is not an address of a model; give a directory, hf://owner/name"),
        ("kaggle://owner/model", r"should be kaggle://owner/model/framework/variation"),
        ("gs://bucket", r"should be gs://bucket/directory"),
        ("owner/name", r"is not a directory; .*, or hf://owner/name for the model of the hub"),
        ("/no/such/place", r"model.path /no/such/place is not a directory"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_at_once(path: str, message: str, tmp_path: Path) -> None:
    config = compose_overrides([*SMALL_RUN, f"model.path='{path}'"])
    with pytest.raises(ModelError, match=message):
        preflight(config, tmp_path)


def test_a_failure_is_told_without_a_traceback(hub: LoopbackHub, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(agent_tunix.__file__).parents[1])}
    command = [sys.executable, "-m", "agent_tunix", "train", *SETTINGS, "hydra.run.dir=run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"ModelError: model.path=hf://{REPO} is no public model of the hub" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_token_in_dotenv_is_used(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add_model(REPO, TINY, private=True)
    (tmp_path / ".env").write_text("HF_TOKEN=hf_from_dotenv\n")
    environment = os.environ | {"PYTHONPATH": str(Path(agent_tunix.__file__).parents[1])}
    command = [sys.executable, "-m", "agent_tunix", "train", *SETTINGS, "hydra.run.dir=run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert {asked.token for asked in hub.asked} == {"hf_from_dotenv"}
    assert "the token that is set is not valid" in done.stderr
