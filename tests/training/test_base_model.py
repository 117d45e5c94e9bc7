"""A run whose model was replaced after it began: an adapter is refused wherever it is used, whole weights warn."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.model_digest import digest_model
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.runs.weights.initial import pin_initial
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.exporting import export_run
from agent_tunix.training.generation import Generator, find_source
from tests.raising import raises
from tests.training.support import ADAPTED, copy_run, small_run, train_config, train_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "run"
    model = shutil.copytree(EMBEDDED_MODEL, root.parent / "model")
    train_run(root, f"model.path={model}", "training.num_batches=1", "training.eval_every_n_steps=0")
    return root


@pytest.fixture(autouse=True)
def _restored_model(adapted: Path, whole: Path) -> Iterator[None]:
    yield
    for run in (adapted, whole):
        shutil.copytree(EMBEDDED_MODEL, run.parent / "model", dirs_exist_ok=True)


def replace_weights(run: Path) -> None:
    """Another model of the same architecture in the place of the run's, as a fine-tuned copy would be."""
    path = run.parent / "model" / "model.safetensors"
    tensors = {name: (array * np.asarray(1.01, array.dtype)) for name, array in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def replace_architecture(run: Path) -> None:
    path = run.parent / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 1e-3}))


def evaluate(run: Path) -> None:
    evaluate_checkpoint(read_request(EvaluateConfig(str(run), num_samples=16, output=str(run.parent / "found.json"))))


def export(run: Path) -> None:
    export_run(find_run(run), run.parent / "exported")


def generate(run: Path) -> None:
    Generator(find_source(run, None), SamplingParams(max_new_tokens=4, temperature=0.0), num_generations=1, seed=0)


def resume(run: Path) -> None:
    config = find_run(run).config
    train_config(dataclasses.replace(config, training=dataclasses.replace(config.training, resume=True)), run)


def load_step_0(run: Path) -> None:
    load_trained_policy(find_run(run), 0)


def test_the_digest_is_stored_beside_the_run_and_in_checkpoints(adapted: Path, whole: Path) -> None:
    for run in (adapted, whole):
        digest = digest_model(EMBEDDED_MODEL)
        assert json.loads((run / "environment.json").read_text())["model"]["digest"] == digest
        for metadata in (run / "checkpoints").glob("step_*/metadata.json"):
            assert json.loads(metadata.read_text())["model_digest"] == digest


@pytest.mark.parametrize(
    ("replace", "use"),
    [*((replace_weights, use) for use in (resume, evaluate, export, generate)), (replace_architecture, load_step_0)],
)
def test_another_base_is_refused(adapted: Path, use: Callable[[Path], None], replace: Callable[[Path], None]) -> None:
    replace(adapted)
    with raises(ModelError, "adapter_mismatch"):
        use(adapted)
    assert not (adapted.parent / "exported").exists()


def test_an_adapter_on_the_model_it_began_with_is_resumed(adapted: Path, tmp_path: Path) -> None:
    run = copy_run(adapted, tmp_path / "run")
    resume(run)
    load_trained_policy(find_run(run), None)


def test_whole_weights_are_resumed_beside_another_model_with_a_warning(whole: Path, tmp_path: Path) -> None:
    run = copy_run(whole, tmp_path / "run")
    replace_weights(whole)
    resume(run)
    assert "the model before training and a fixed reference policy have other" in (
        run / "train.log"
    ).read_text().replace("\n", " ")


def test_an_adapter_does_not_begin_on_a_model_that_was_replaced_in_place(adapted: Path, tmp_path: Path) -> None:
    replace_weights(adapted)
    model = f"model.path={adapted.parent / 'model'}"
    with raises(ConfigError, "adapter_mismatch"):
        train_run(tmp_path / "run", *ADAPTED, model, f"training.init_checkpoint={adapted}")


@pytest.mark.parametrize("step", ["", ":best"])
def test_a_resumed_run_keeps_the_step_that_it_began_with(adapted: Path, step: str, tmp_path: Path) -> None:
    other, root = copy_run(adapted, tmp_path / "other"), tmp_path / "run"
    checkpoints = Checkpoints(other / "checkpoints", 9)
    first, second, third = (other / "checkpoints" / f"step_{number:06d}" for number in (2, 4, 6))
    shutil.copytree(second, first)
    checkpoints.mark_best(2)
    config = small_run(f"training.init_checkpoint={other}{step}")
    pinned = pin_initial(config, root)
    root.mkdir()
    (root / "config.yaml").write_text(to_yaml(pinned))
    shutil.copytree(second, third)
    checkpoints.mark_best(6)
    config.training.resume = True
    assert pin_initial(config, root).training.init_checkpoint == pinned.training.init_checkpoint
