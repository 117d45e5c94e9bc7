"""The model of a trainer: names, directories and models in memory."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.trl.config import GRPOConfig
from agent_tunix.trl.models import JaxModel, PolicyModel
from tests.raising import raises


@pytest.mark.parametrize(
    ("model", "init", "path"),
    [
        ("owner/name", None, "hf://owner/name"),
        ("owner/name", {"revision": "v2", "attn_implementation": "sdpa"}, "hf://owner/name@v2"),
        ("embedded:tiny_tools", None, "embedded:tiny_tools"),
        ("/", {"dtype": "auto"}, "/"),
    ],
)
def test_models_by_name_or_directory(model: str, init: dict[str, Any] | None, path: str) -> None:
    policy = PolicyModel(model, GRPOConfig(model_init_kwargs=init))
    assert policy.place(Path("unused"), None) == path
    assert policy.values == {"model.quantization": None, "model.lora_rank": 0}


def test_an_object_of_another_kind_is_refused_with_its_name() -> None:
    model = SimpleNamespace(config=SimpleNamespace(_name_or_path="owner/name"))
    with raises(ConfigError, "unsupported_argument", "pass its name or directory: 'owner/name'"):
        PolicyModel(model, GRPOConfig())


def test_bits_and_bytes() -> None:
    four = SimpleNamespace(load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="nf4")
    assert PolicyModel("a/b", GRPOConfig(), four).values["model.quantization"] == "nf4"
    eight = GRPOConfig(model_init_kwargs={"load_in_8bit": True})
    assert PolicyModel("a/b", eight).values["model.quantization"] == "int8"


def test_a_quantized_object_is_quantized_here(caplog: pytest.LogCaptureFixture) -> None:
    config = SimpleNamespace(_name_or_path="a/b", quantization_config={"load_in_4bit": True})
    policy = PolicyModel(SimpleNamespace(config=config, save_pretrained=None), GRPOConfig())
    assert policy.values["model.quantization"] == "nf4"
    assert policy.place(Path("unused"), None) == "hf://a/b"
    policy.update(lambda directory: None)
    assert "keeps its weights" in caplog.text


def test_a_model_without_a_name_requires_its_tokenizer() -> None:
    model = SimpleNamespace(config=SimpleNamespace(), save_pretrained=None)
    with raises(ConfigError, "invalid_config", "processing_class"):
        PolicyModel(model, GRPOConfig()).place(Path("unused"), None)


def test_weights_that_an_earlier_run_left_are_used_only_to_resume_it(tmp_path: Path) -> None:
    saved = []
    model = SimpleNamespace(
        config=SimpleNamespace(_name_or_path="a/b"), state_dict=dict, save_pretrained=lambda *_, **__: saved.append(1)
    )
    tokenizer = SimpleNamespace(name_or_path="c/d", save_pretrained=lambda _: None)
    policy = PolicyModel(model, GRPOConfig())
    assert policy.place(tmp_path, tokenizer, resumes=True) == str(tmp_path)
    assert not saved
    assert policy.place(tmp_path, tokenizer) == str(tmp_path)
    assert saved


def test_the_stand_in_loads_the_weights_again_after_further_training(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = iter([SimpleNamespace(weights=number, config=SimpleNamespace()) for number in (1, 2)])
    monkeypatch.setattr("agent_tunix.trl.models.load_exported", lambda _: next(loaded))
    model = JaxModel("a/b", lambda _: None, save=lambda directory: None, push=lambda: None)
    assert (model.weights, model.weights) == (1, 1)
    model.forget()
    assert model.weights == 2


def test_the_model_of_an_earlier_trainer_is_trained_further(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(config=SimpleNamespace(), save_pretrained=None, eval=lambda: None)
    monkeypatch.setattr("agent_tunix.trl.models.load_exported", lambda _: loaded)
    policy = PolicyModel(JaxModel("a/b", lambda _: None, lambda directory: None, lambda: None), GRPOConfig())
    assert (policy.in_memory, policy.name) == (loaded, "a/b")


def test_the_stand_in_of_a_model_says_what_is_missing() -> None:
    def export(directory: Path) -> None:
        raise ConfigError("there is no run yet")

    model = JaxModel("a/b", export, save=lambda directory: None, push=lambda: None)
    model.config.use_cache = True
    model.save_pretrained("anywhere", safe_serialization=True)
    with pytest.raises(AttributeError, match="its weights are in JAX"):
        model.generate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory of the embedded model."""
    shutil.copytree(EMBEDDED_MODEL, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_a_model_in_memory_trains_from_its_weights_and_gets_the_trained_ones(directory: Path, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    policy = PolicyModel(model, GRPOConfig())
    assert policy.place(tmp_path / "unused", None) == str(directory)
    with torch.no_grad():
        model.model.norm.weight.add_(1.0)
    assert policy.place(tmp_path / "mine", None) == str(tmp_path / "mine")
    assert (tmp_path / "mine" / "tokenizer.json").is_file()
    policy.update(lambda place: shutil.copytree(directory, place, dirs_exist_ok=True))
    assert policy.place(tmp_path / "unused", None) == str(directory)


@pytest.mark.slow
def test_the_adapter_of_a_peft_model_trains_unless_it_is_trained(directory: Path, tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    pytest.importorskip("torch")
    base = transformers.AutoModelForCausalLM.from_pretrained(directory)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    policy = PolicyModel(model, GRPOConfig())
    assert (policy.values["model.lora_rank"], policy.has_adapter) == (2, True)
    assert policy.place(tmp_path / "unused", None) == str(directory)
    with raises(ConfigError, "invalid_config", "exclude each other"):
        PolicyModel(model, GRPOConfig(), peft={"r": 4})
    next(value for name, value in model.named_parameters() if ".lora_B." in name).data.add_(1.0)
    with raises(ConfigError, "unsupported_argument", "merge_and_unload"):
        PolicyModel(model, GRPOConfig())
