"""A run whose model lies on a hub: what it records, that it goes on with the same commit, and when nothing is asked."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import agent_tunix
from agent_tunix.cli import main
from agent_tunix.config.compose import compose_overrides, from_yaml
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ModelError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.train import train
from tests.hubs.gsm8k import as_jsonl
from tests.hubs.loopback_hub import TOKEN, LoopbackHub
from tests.hubs.services import TINY
from tests.small_run import SMALL_RUN

REPO = "owner/tiny"
SETTINGS = [*SMALL_RUN, f"model.path=hf://{REPO}", "tracking.progress=none"]


def run(root: Path, *overrides: str) -> None:
    train(preflight(compose_overrides([*SETTINGS, *overrides]), root), root)


def command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent_tunix", "train", *SETTINGS, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(Path(agent_tunix.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


def sums(count: int, of: int) -> bytes:
    return as_jsonl([{"question": f"What is {n} plus {of}?", "answer": f"#### {n + of}"} for n in range(count)])


@pytest.mark.slow
def test_a_run_records_the_commits_and_goes_on_with_them(dataset_hub: LoopbackHub, tmp_path: Path) -> None:
    hub = dataset_hub
    repository = hub.add_model(REPO, TINY)
    rows = hub.add_dataset("owner/sums", {"train.jsonl": sums(64, of=1), "test.jsonl": sums(16, of=2)})
    data = ["data.source=huggingface", "data.path=owner/sums", f"grpo.teacher=hf://{REPO}", "grpo.beta=0"]
    data.append("training.save_interval_steps=2")
    first, first_rows = repository.head, rows.head
    root = tmp_path / "run"
    run(root, *data)
    pinned = f"hf://{REPO}@{first}"
    assert from_yaml(root / "config.yaml").model.path == pinned
    model = json.loads((root / "environment.json").read_text())["model"]
    assert model["path"] == pinned
    assert Path(model["directory"]).name == first
    assert from_yaml(root / "config.yaml").grpo.teacher == pinned
    assert json.loads((root / "environment.json").read_text())["teacher"] == model
    assert pinned in (root / "train.log").read_text()

    repository.commit({"model.safetensors": b"of another shape"})
    rows.commit({"train.jsonl": sums(64, of=3)})
    shutil.rmtree(root / "checkpoints" / "step_000004")
    run(root, *data, "training.resume=true")
    assert from_yaml(root / "config.yaml").model.path == from_yaml(root / "config.yaml").grpo.teacher == pinned
    assert from_yaml(root / "config.yaml").data.revision == first_rows
    assert "the configuration differs from the one" not in (root / "train.log").read_text()

    hub.close()
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(root), num_samples=16)))
    assert list(root.glob("evaluation_step_*.json"))


@pytest.mark.slow
def test_an_export_is_pushed_with_its_card(hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(REPO, TINY)
    run(tmp_path / "run", "training.num_batches=1", "evaluation.num_samples=0")
    without = CliRunner().invoke(main, ["export", str(tmp_path / "run"), "--push", "owner/trained"])
    assert (without.exit_code, "set HF_TOKEN" in without.stderr) == (2, True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    done = CliRunner().invoke(main, ["export", str(tmp_path / "run"), "--push", "owner/trained"])
    assert done.exit_code == 0, done.output
    assert f"{hub.url}/owner/trained: the model after step 1" in done.stdout
    pushed = hub.models["owner/trained"]
    assert pushed.private
    assert {"config.json", "model.safetensors", "README.md", "export.json"} <= pushed.files.keys()
    assert b'from_pretrained("owner/trained")' in pushed.files["README.md"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("arguments", "words"), [((), "--push OWNER/NAME"), (("--push", "name"), "owner/name")])
def test_an_export_to_nowhere_is_refused_before_anything_is_loaded(arguments: tuple[str, ...], words: str) -> None:
    refused = CliRunner().invoke(main, ["export", "absent", *arguments])
    assert (refused.exit_code, words in refused.stderr) == (2, True)


def test_checking_a_configuration_asks_no_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    preflight(compose_overrides(SETTINGS), tmp_path)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("hf://owner", "hf://owner/name@revision"),
        ("https://huggingface.co/owner/name/tree/main", "write hf://owner/name"),
        ("s3://bucket/name", "give a directory, hf://owner/name"),
        ("owner/name", "hf://owner/name for a model on the hub"),
        ("/no/such/place", "model.path /no/such/place is not a directory"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_at_once(path: str, words: str, tmp_path: Path) -> None:
    config = compose_overrides([*SMALL_RUN, f"model.path='{path}'"])
    with pytest.raises(ModelError) as caught:
        preflight(config, tmp_path)
    assert words in str(caught.value)


@pytest.mark.slow
def test_the_command_line_asks_with_the_token_of_dotenv_and_fails_without_a_traceback(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    hub.add_model(REPO, TINY, private=True)
    printed = command(tmp_path, "--cfg", "job")
    assert f"path: hf://{REPO}" in printed.stdout
    assert hub.asked == []
    stranger = command(tmp_path, "hydra.run.dir=run")
    assert stranger.returncode == 2
    assert f"ModelError: model.path=hf://{REPO} is not a public model" in stranger.stderr
    assert "Traceback" not in stranger.stderr
    hub.asked.clear()
    (tmp_path / ".env").write_text("HF_TOKEN=hf_from_dotenv\n")
    command(tmp_path, "hydra.run.dir=run")
    assert {asked.token for asked in hub.asked} == {"hf_from_dotenv"}
