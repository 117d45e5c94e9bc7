"""A run's policy as a Hugging Face directory: the same numbers, written whole or not at all, over nobody's files."""

import ast
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from agent_tunix.cli import main
from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ExportError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files import export as policy_export
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder, load_policy
from agent_tunix.runs.found_run import FoundRun, find_run
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.tracking import StoredRun
from agent_tunix.tracking.report import write_report
from agent_tunix.training import exporting
from agent_tunix.training.exporting import _base_of, export_run
from tests.policy.support import logits_of as policy_logits
from tests.policy.support import make_directory
from tests.raising import raises
from tests.training.support import copy_run, train_run

pytestmark = pytest.mark.slow

TEMPLATE = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


def with_plots(run: Path, to: Path) -> FoundRun:
    """A copy of a run, and the pictures that a run leaves, which an export would draw."""
    write_report(StoredRun(copy_run(run, to)), to)
    return find_run(to)


@pytest.fixture(scope="module")
def whole(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> FoundRun:
    return with_plots(finished, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def adapter_run(adapted: Path, tmp_path_factory: pytest.TempPathFactory) -> FoundRun:
    return with_plots(adapted, tmp_path_factory.mktemp("adapter") / "run")


@pytest.fixture(scope="module")
def again(whole: FoundRun, tmp_path_factory: pytest.TempPathFactory) -> FoundRun:
    """A run on an exported model with files of its own, under a link, with a chat template from the configuration."""
    directory = tmp_path_factory.mktemp("again")
    export_run(whole, directory / "base")
    (directory / "base" / "LICENSE").write_text("as you like")
    (directory / "base" / "pytorch_model.bin").write_bytes(b"weights of another form")
    (directory / "base" / "README.md").write_text("what it was")
    (directory / "link").symlink_to(directory / "base")
    (directory / "mine.jinja").write_text(TEMPLATE)
    model = (f"model.path={directory / 'link'}", "model.model_size=custom", "training.num_batches=1")
    train_run(directory / "run", *model, f"prompt.chat_template={directory / 'mine.jinja'}")
    (directory / "mine.jinja").unlink()
    return find_run(directory / "run")


def logits_of(model: Any) -> np.ndarray:
    tokens = np.random.default_rng(0).integers(5, 1000, (2, 12))
    return np.asarray(policy_logits(model, jnp.asarray(tokens)))


def load(directory: Path) -> Any:
    float32 = jnp.dtype("float32")
    return load_decoder(directory, read_architecture(directory), make_mesh([1, 1]), float32, float32)


@pytest.mark.parametrize("kind", ["adapter_run", "whole"])
def test_an_exported_model_is_the_policy(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    export_run(run, tmp_path / "out")
    trained = load_trained_policy(run, None)
    found = logits_of(load(tmp_path / "out"))
    np.testing.assert_allclose(found, logits_of(trained.policy), atol=1e-4 if kind == "adapter_run" else 0)
    assert np.abs(found - logits_of(load(EMBEDDED_MODEL))).max() > 1e-3


def test_an_exported_model_trains_and_exports_again(again: FoundRun, tmp_path: Path) -> None:
    base = again.root.parent / "base"
    export_run(again, tmp_path / "out", step=0)
    first, second = (load_file(directory / "model.safetensors") for directory in (base, tmp_path / "out"))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)
    assert Tokenizer(tmp_path / "out").chat_template == TEMPLATE
    assert (tmp_path / "out" / "LICENSE").read_text() == "as you like"
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    assert "what it was" not in (tmp_path / "out" / "README.md").read_text()


def test_the_step_is_chosen(whole: FoundRun, tmp_path: Path) -> None:
    weights = {}
    for step in (0, 2, 4):
        assert export_run(whole, tmp_path / str(step), step=step).step == step
        weights[step] = load_file(tmp_path / str(step) / "model.safetensors")["model.embed_tokens.weight"]
    np.testing.assert_array_equal(
        weights[0], load_file(EMBEDDED_MODEL / "model.safetensors")["model.embed_tokens.weight"]
    )
    assert not np.array_equal(weights[2], weights[0])
    assert not np.array_equal(weights[4], weights[2])


def test_an_adapter_is_what_it_adds_to_the_weights(adapter_run: FoundRun, tmp_path: Path) -> None:
    export_run(adapter_run, tmp_path / "adapter", adapter=True)
    export_run(adapter_run, tmp_path / "merged")
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
    for kind in ("adapter", "merged"):
        code = (tmp_path / kind / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
        ast.parse(code)
        assert "do_sample=False)  # greedy, as in the evaluation" in code
    assert config["base_model_name_or_path"] == adapter_run.config.model.path


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_on_the_head_stands_beside_the_decoder(tmp_path: Path, tied: bool) -> None:
    """PEFT looks for it there; an embedding that is the head too has no adapter."""
    directory = make_directory(tmp_path / "model", tie_word_embeddings=tied)
    pattern = r".*lm_head|.*up_proj"
    config = ModelConfig(path=str(directory), dtype="float32", lora_rank=2, lora_module_path=pattern)
    policy = load_policy(directory, config, make_mesh([1, 1]))
    (tmp_path / "out").mkdir()
    policy_export.write_adapter(policy, directory, tmp_path / "out", 4.0, "base")
    names = {name.rsplit(".", 2)[0] for name in load_file(tmp_path / "out" / "adapter_model.safetensors")}
    head = set() if tied else {"base_model.model.lm_head"}
    assert names == {"base_model.model.model.layers.0.mlp.up_proj", *head}
    described = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert len(described["target_modules"]) == len(names)


def test_everything_a_user_needs_lies_in_the_directory(finished: Path, tmp_path: Path) -> None:
    export_run(find_run(finished), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {path.name for path in EMBEDDED_MODEL.iterdir() if path.name != "__init__.py"} <= names | {"README.md"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "| accuracy |" in card
    assert r"word\_problems" in card
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["reward_fingerprint"]["hash"] in card
    for picture in (tmp_path / "out" / "plots").iterdir():
        assert f"(plots/{picture.name})" in card
    assert "**Reward.** The reward of the policy" in card


def test_weights_are_stored_in_the_type_that_is_asked_for(whole: FoundRun, tmp_path: Path) -> None:
    export_run(whole, tmp_path / "out", dtype="bfloat16")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {str(array.dtype) for array in stored.values()} == {"bfloat16"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"


def test_a_large_model_is_several_files(whole: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_run(whole, tmp_path / "one")
    monkeypatch.setattr(policy_export, "MAX_FILE_BYTES", 400_000)
    export_run(whole, tmp_path / "several")
    files = sorted((tmp_path / "several").glob("*.safetensors"))
    assert len(files) > 2
    index = json.loads((tmp_path / "several" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == [file.name for file in files]
    np.testing.assert_array_equal(logits_of(load(tmp_path / "several")), logits_of(load(tmp_path / "one")))


# Nothing half, and nothing of others.


def test_a_directory_with_something_in_it_is_refused(whole: FoundRun, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    for overwrite, code in ((False, "export_place_taken"), (True, "export_place_taken")):
        with raises(ExportError, code):
            export_run(whole, tmp_path / "mine", overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_earlier_export_is_replaced_unless_others_worked_in_it(whole: FoundRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_run(whole, out, step=0)
    with raises(ExportError, "export_place_taken"):
        export_run(whole, out)
    export_run(whole, out, overwrite=True)
    card = (out / "README.md").read_text()
    assert "after step 4" in card
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for name, text in (("notes.md", "my words"), ("README.md", "my words"), ("mine/later", None)):
        path = out / name
        if text is None:
            path.mkdir(parents=True)
        else:
            path.write_text(text)
        with raises(ExportError, "export_place_taken", name):
            export_run(whole, out, overwrite=True)
        assert path.is_dir() if text is None else path.read_text() == text
        if text is None:
            continue
        path.unlink()
        if name == "README.md":
            path.write_text(card)


def test_what_a_run_needs_is_not_replaced(whole: FoundRun, again: FoundRun) -> None:
    """Its model, its directory, what holds that, and what lies in it."""
    base = again.root.parent / "base"
    for run, place in ((again, base), (whole, whole.root), (whole, whole.root.parent), (whole, whole.checkpoints)):
        before = sorted(place.rglob("*"))
        with raises(ExportError, "export_place_taken"):
            export_run(run, place, overwrite=True)
        assert sorted(place.rglob("*")) == before


def test_an_export_that_fails_leaves_nothing(whole: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_card", fail)
    with raises(ExportError, "export_failed", "No space left on device"):
        export_run(whole, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_taken_for_a_directory(whole: FoundRun, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with raises(ExportError, "export_place_taken"):
        export_run(whole, tmp_path / "out")


def test_the_command_says_what_it_wrote(whole: FoundRun, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["export", str(whole.root), "--to", str(tmp_path / "out"), "--step", "2"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{tmp_path / 'out'}: the model after step 2, ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["RUN", "--step", "7"], "no checkpoint of step 7"),
        (["RUN", "--step", "last"], "--step must be the step of a"),
        (["RUN", "--step", "1.5"], "best or latest, not 1.5"),
        (["RUN", "--adapter"], "requires an adapter"),
        (["."], "must be the directory of a run"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    whole: FoundRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(whole.root) if option == "RUN" else option for option in options]
    result = CliRunner().invoke(main, ["export", *given, "--to", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert said in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("hf://owner/name@0123abc", ("owner/name", "0123abc")),
        ("hf://owner/name", ("owner/name", None)),
        ("/models/base", ("/models/base", None)),
    ],
)
def test_an_adapter_names_its_base_model_as_peft_reads_it(path: str, base: tuple[str, str | None]) -> None:
    assert _base_of(path) == base
