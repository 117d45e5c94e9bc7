"""A run's policy as a Hugging Face directory: the same numbers, written whole or not at all, over nobody's files."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from flax import nnx
from safetensors.numpy import load_file

from agent_tunix.cli import main
from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ExportError
from agent_tunix.policy import export as policy_export
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder, load_policy
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.training import exporting
from agent_tunix.training.exporting import export_run
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from agent_tunix.training.trained_policy import FoundRun, find_run, load_trained_policy
from tests.policy.support import make_directory
from tests.small_run import SMALL_RUN


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> FoundRun:
    return make_run(tmp_path_factory.mktemp("adapted") / "run", "model.lora_rank=4", "optimizer.learning_rate=0.05")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FoundRun:
    return make_run(tmp_path_factory.mktemp("whole") / "run", "training.save_interval_steps=1")


def make_run(root: Path, *overrides: str) -> FoundRun:
    settings = [*SMALL_RUN, "training.num_batches=2", "training.eval_every_n_steps=0", "tracking.progress=none"]
    train(preflight(compose_overrides([*settings, *overrides]), root.parent), root)
    return find_run(root)


def logits_of(model: Any) -> np.ndarray:
    tokens = np.random.default_rng(0).integers(5, 1000, (2, 12))
    positions, mask = np.arange(12)[None].repeat(2, 0), np.tril(np.ones((2, 12, 12), bool))
    logits, _ = nnx.jit(lambda model: model(jnp.asarray(tokens), jnp.asarray(positions), None, jnp.asarray(mask)))(
        model
    )
    return np.asarray(logits)


def load(directory: Path) -> Any:
    float32 = jnp.dtype("float32")
    return load_decoder(directory, read_architecture(directory), make_mesh([1, 1]), float32, float32)


@pytest.mark.parametrize("kind", ["adapted", "whole"])
def test_an_exported_model_is_the_policy(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    export_run(run, tmp_path / "out")
    trained = load_trained_policy(run, None)
    found = logits_of(load(tmp_path / "out"))
    np.testing.assert_allclose(found, logits_of(trained.policy), atol=1e-4 if kind == "adapted" else 0)
    assert np.abs(found - logits_of(load(EMBEDDED_MODEL))).max() > 1e-3


def test_an_exported_model_trains_and_exports_again(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "first")
    again = make_run(tmp_path / "run", f"model.path={tmp_path / 'first'}", "model.model_size=custom")
    export_run(again, tmp_path / "second", step=0)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)


def test_a_chat_template_of_the_configuration_goes_along(tmp_path: Path) -> None:
    template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    (tmp_path / "mine.jinja").write_text(template)
    run = make_run(tmp_path / "run", f"prompt.chat_template={tmp_path / 'mine.jinja'}")
    (tmp_path / "mine.jinja").unlink()
    export_run(run, tmp_path / "out")
    assert Tokenizer(tmp_path / "out").chat_template == template


def test_the_step_is_chosen(whole: FoundRun, tmp_path: Path) -> None:
    weights = {}
    for step in (0, 1, 2):
        assert export_run(whole, tmp_path / str(step), step=step).step == step
        weights[step] = load_file(tmp_path / str(step) / "model.safetensors")["model.embed_tokens.weight"]
    np.testing.assert_array_equal(
        weights[0], load_file(EMBEDDED_MODEL / "model.safetensors")["model.embed_tokens.weight"]
    )
    assert not np.array_equal(weights[1], weights[0])
    assert not np.array_equal(weights[2], weights[1])


def test_an_adapter_is_what_it_adds_to_the_weights(adapted: FoundRun, tmp_path: Path) -> None:
    export_run(adapted, tmp_path / "adapter", adapter=True)
    export_run(adapted, tmp_path / "merged")
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    base, merged = load_file(EMBEDDED_MODEL / "model.safetensors"), load_file(tmp_path / "merged" / "model.safetensors")
    scale = config["lora_alpha"] / config["r"]
    pairs = 0
    for name, a in adapter.items():
        if ".lora_A." in name:
            b = adapter[name.replace(".lora_A.", ".lora_B.")]
            stored = name.removeprefix("base_model.model.").replace(".lora_A", "")
            added = merged[stored].astype(np.float32) - base[stored].astype(np.float32)
            np.testing.assert_allclose(scale * b @ a, added, atol=1e-5, err_msg=name)
            assert np.abs(added).max() > 0
            assert stored.split(".")[-2] in config["target_modules"]
            pairs += 1
    assert pairs == 7 * 3
    assert config["base_model_name_or_path"] == str(EMBEDDED_MODEL)


def test_an_adapter_on_some_modules_names_those(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "model.lora_rank=2", "model.lora_module_path='.*1/self_attn/(q|v)_proj'")
    export_run(run, tmp_path / "out", adapter=True)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["layers.1.self_attn.q_proj", "layers.1.self_attn.v_proj"]


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_on_the_head_stands_beside_the_decoder(tmp_path: Path, tied: bool) -> None:
    """Where PEFT looks for it; an embedding that is the head too has no adapter."""
    directory = make_directory(tmp_path / "model", tie_word_embeddings=tied)
    pattern = r".*lm_head|.*up_proj"
    config = ModelConfig(path=str(directory), dtype="float32", lora_rank=2, lora_module_path=pattern)
    policy = load_policy(directory, config, make_mesh([1, 1]))
    (tmp_path / "out").mkdir()
    policy_export.write_adapter(policy, directory, tmp_path / "out", 4.0, "base")
    names = {name.rsplit(".", 2)[0] for name in load_file(tmp_path / "out" / "adapter_model.safetensors")}
    head = set() if tied else {"base_model.model.lm_head"}
    assert names == {"base_model.model.model.layers.0.mlp.up_proj", *head}


def test_without_an_adapter_none_is_exported(whole: FoundRun, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["export", str(whole.root), "--to", str(tmp_path / "out"), "--adapter"])
    assert result.exit_code == 2
    assert "has no adapter, since all its weights were trained" in result.output
    assert list(tmp_path.iterdir()) == []


def test_everything_a_user_needs_lies_in_the_directory(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {path.name for path in EMBEDDED_MODEL.iterdir() if path.name != "__init__.py"} <= names | {"README.md"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "| accuracy |" in card
    assert "word_problems" in card
    environment = json.loads((whole.root / "environment.json").read_text())
    assert environment["reward_fingerprint"]["hash"] in card
    for picture in (tmp_path / "out" / "plots").iterdir():
        assert f"(plots/{picture.name})" in card


def test_weights_are_stored_in_the_type_that_is_asked_for(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "out", dtype="bfloat16")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {str(array.dtype) for array in stored.values()} == {"bfloat16"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"


def test_a_large_model_is_several_files_with_an_index(
    whole: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_run(whole, tmp_path / "one")
    monkeypatch.setattr(policy_export, "MAX_FILE_BYTES", 400_000)
    export_run(whole, tmp_path / "several")
    files = sorted((tmp_path / "several").glob("*.safetensors"))
    assert len(files) > 2
    index = json.loads((tmp_path / "several" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == [file.name for file in files]
    np.testing.assert_array_equal(logits_of(load(tmp_path / "several")), logits_of(load(tmp_path / "one")))


def test_other_files_of_the_model_go_along(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(EMBEDDED_MODEL, model)
    (model / "LICENSE").write_text("as you like")
    (model / "pytorch_model.bin").write_bytes(b"weights of another form")
    (model / "README.md").write_text("what it was")
    run = make_run(tmp_path / "run", f"model.path={model}", "model.model_size=custom")
    export_run(run, tmp_path / "out")
    assert (tmp_path / "out" / "LICENSE").read_text() == "as you like"
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    assert "what it was" not in (tmp_path / "out" / "README.md").read_text()


# Nothing half, and nothing of others.


def test_a_directory_with_something_in_it_is_refused(whole: FoundRun, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    for overwrite in (False, True):
        with pytest.raises(ExportError, match="is not empty" if not overwrite else r"no export wrote.*thesis\.txt"):
            export_run(whole, tmp_path / "mine", overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_earlier_export_is_replaced_if_asked(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "out", step=0)
    with pytest.raises(ExportError, match="is not empty"):
        export_run(whole, tmp_path / "out")
    export_run(whole, tmp_path / "out", overwrite=True)
    assert "after step 2" in (tmp_path / "out" / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("change", ["added", "edited"])
def test_an_export_with_work_of_others_in_it_is_not_replaced(whole: FoundRun, tmp_path: Path, change: str) -> None:
    export_run(whole, tmp_path / "out")
    name = "notes.md" if change == "added" else "README.md"
    (tmp_path / "out" / name).write_text("my words")
    with pytest.raises(ExportError, match=f"no export wrote, or has changed since: {name}"):
        export_run(whole, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / name).read_text() == "my words"


@pytest.mark.parametrize("linked", [False, True])
def test_the_model_that_the_run_began_with_is_not_replaced(whole: FoundRun, tmp_path: Path, linked: bool) -> None:
    export_run(whole, tmp_path / "base")
    (tmp_path / "link").symlink_to(tmp_path / "base")
    path = tmp_path / ("link" if linked else "base")
    run = make_run(tmp_path / "run", f"model.path={path}", "model.model_size=custom")
    before = sorted((tmp_path / "base").iterdir())
    with pytest.raises(ExportError, match="cannot be replaced: the model that the run began with lies in"):
        export_run(run, tmp_path / "base", overwrite=True)
    assert sorted((tmp_path / "base").iterdir()) == before


@pytest.mark.parametrize("place", [".", "..", "checkpoints"])
def test_neither_the_run_nor_what_holds_it_or_lies_in_it_is_replaced(whole: FoundRun, place: str) -> None:
    with pytest.raises(ExportError, match=r"cannot be replaced: the run lies in .*nothing was removed"):
        export_run(whole, whole.root / place, overwrite=True)
    assert (whole.root / "config.yaml").is_file()


def test_an_export_with_an_empty_directory_of_others_in_it_is_not_replaced(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "out")
    (tmp_path / "out" / "mine" / "later").mkdir(parents=True)
    with pytest.raises(ExportError, match="no export wrote, or has changed since: mine/later"):
        export_run(whole, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "mine" / "later").is_dir()


def test_an_export_that_fails_leaves_nothing(whole: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_card", fail)
    with pytest.raises(ExportError, match="could not be written: No space left on device"):
        export_run(whole, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_taken_for_a_directory(whole: FoundRun, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ExportError, match="there is a file or a link of that name"):
        export_run(whole, tmp_path / "out")


def test_the_command_says_what_it_wrote(whole: FoundRun, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["export", str(whole.root), "--to", str(tmp_path / "out"), "--step", "1"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{tmp_path / 'out'}: the model after step 1, ")


@pytest.mark.parametrize(
    ("step", "said"),
    [("7", "no checkpoint of step 7"), ("last", "--step must be the step of a"), ("1.5", "best or latest, not 1.5")],
)
def test_a_step_that_is_not_there_is_refused(whole: FoundRun, tmp_path: Path, step: str, said: str) -> None:
    result = CliRunner().invoke(main, ["export", str(whole.root), "--to", str(tmp_path / "out"), "--step", step])
    assert result.exit_code == 2
    assert said in result.output


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["export", str(tmp_path), "--to", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "should be the directory of a run" in result.output
