"""The `model` of a `GRPOTrainer`: a name, a directory, or a model of transformers or PEFT in memory.

The weights that train are in JAX. A model in memory is where they come from, and gets them back after training. PyTorch
and transformers are imported only if the script has such a model, or asks for one after training.
"""

import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_tunix.errors import ConfigError
from agent_tunix.trl.adapters import adapter_values
from agent_tunix.trl.config import GRPOConfig, refuse

_LOGGER = logging.getLogger("agent_tunix.trl")

# Arguments of `from_pretrained` that change neither the weights nor their type.
_LOADING = ("attn_implementation", "device_map", "use_cache", "low_cpu_mem_usage", "trust_remote_code", "use_kernels")


class PolicyModel:
    """The model that a trainer trains.

    Args:
        model: Name on the hub, a directory, or an object of transformers or PEFT.
        args: Settings.
        quantization: `quantization_config` of the trainer.
        peft: `peft_config` of the trainer.

    Attributes:
        name: Name or directory that the model was loaded from.
        has_adapter: True if an adapter trains.
        values: Keys of the model, without `model.path`.

    Raises:
        ConfigError: The object is no model of transformers, has a trained adapter, or is loaded in a way that does not
            exist here.
    """

    def __init__(self, model: Any, args: GRPOConfig, quantization: Any = None, peft: Any = None) -> None:
        if isinstance(model, JaxModel):  # of an earlier trainer
            model = model.merge_and_unload()
        self._given: Any = None if isinstance(model, str | os.PathLike) else model
        open_base = getattr(self._given, "get_base_model", None)
        self._base: Any = open_base() if open_base else self._given
        config = getattr(self._base, "config", None)
        self.name = os.fspath(model) if self._given is None else str(getattr(config, "_name_or_path", ""))
        if self._given is not None and not hasattr(self._base, "save_pretrained"):
            refuse("model", type(model).__name__, "is trained as it is", f"pass its name or directory: {self.name!r}")
        if self._base is not self._given:
            peft = _untrained_adapter(self._given, peft)
        loading = _loading_values(args, quantization or getattr(config, "quantization_config", None))
        self._revision = loading.pop("revision") or getattr(config, "_commit_hash", None)
        self.has_adapter = peft is not None
        self.values = {**loading, **adapter_values(peft)}

    @property
    def in_memory(self) -> Any:
        """The model in memory that the script gave; None for a name."""
        return self._given

    def place(self, directory: Path, tokenizer: Any, *, resumes: bool = False) -> str:
        """Return the value of `model.path`. Weights that differ from those of `name` are written to the directory.

        Args:
            directory: Directory for weights in memory.
            tokenizer: The tokenizer that is written with them; None: that of `name`.
            resumes: True to keep a directory that exists, which is that of the run to resume.

        Raises:
            ConfigError: The model has no name, and there is no tokenizer.
        """
        if tokenizer is None and not self.name:
            raise ConfigError("a model without a name requires its tokenizer; pass processing_class")
        same_tokenizer = getattr(tokenizer, "name_or_path", None) in (None, self.name)
        if self._given is None or self.values["model.quantization"] or (same_tokenizer and self._is_unchanged()):
            return _location(self.name, self._revision)
        if not (resumes and directory.exists()):
            if tokenizer is None:
                tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(self.name)
            self._base.save_pretrained(directory, state_dict=self._state())
            tokenizer.save_pretrained(directory)
        return str(directory)

    def update(self, export: Callable[[Path], object]) -> None:
        """Give the trained weights to the model in memory; of a model with an adapter, to its base.

        Args:
            export: Function that writes the trained model to a directory.
        """
        if self._given is None:
            return
        if self.values["model.quantization"]:
            _LOGGER.warning(
                "the quantised model in memory keeps its weights; the trained ones: trainer.save_model(DIR)"
            )
            return
        weights, own = load_exported(export, type(self._base)).state_dict(), self._state()
        for name, value in own.items():
            value.copy_(weights[name])

    def _state(self) -> dict[str, Any]:
        state = self._base.state_dict()
        return {name.replace(".base_layer", ""): value for name, value in state.items() if ".lora_" not in name}

    def _is_unchanged(self) -> bool:
        """Return True if the weights are those of `name`, read file by file."""
        torch, safetensors = importlib.import_module("torch"), importlib.import_module("safetensors")
        directory, state = _local_directory(self.name, self._revision), self._state()
        files = sorted(directory.glob("*.safetensors")) if directory else []
        for file in files:
            with safetensors.safe_open(str(file), "pt") as weights:
                for name in weights.keys():  # noqa: SIM118  # no mapping
                    own, stored = state.get(name), weights.get_tensor(name)
                    if own is None or own.shape != stored.shape or not torch.equal(own.cpu(), stored.to(own.dtype)):
                        return False
        return bool(files)


class JaxModel:
    """Stands for a model that was given by name; after training it loads the trained weights when they are used.

    Args:
        name: Name or directory of the model.
        export: Function that writes the trained model to a directory; it raises ConfigError before training.
        save: Function of `save_pretrained`.
        push: Function of `push_to_hub`.
    """

    def __init__(
        self, name: str, export: Callable[[Path], object], save: Callable[..., object], push: Callable[..., object]
    ) -> None:
        # Scripts set these, and write the configuration, which `save_model` does.
        self.config = SimpleNamespace(use_cache=True, _name_or_path=name, save_pretrained=lambda directory: None)
        self.config.to_dict = lambda: {"_name_or_path": name}
        self.generation_config = SimpleNamespace()
        self.name_or_path, self._export, self.push_to_hub = name, export, push
        self.save_pretrained: Callable[..., object] = lambda directory, **options: save(directory)
        self._loaded: Any = None

    def forget(self) -> None:
        """Forget the loaded weights, because the policy has been trained since."""
        self._loaded = None

    def merge_and_unload(self) -> Any:
        """Return the trained model as an object of transformers."""
        self.eval()
        return self._loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._loaded is None:
            try:
                self._loaded = load_exported(self._export)
            except (ConfigError, ImportError) as error:
                raise AttributeError(
                    f"the model has no {name!r} here, because its weights are in JAX ({error}); after train(), with"
                    " torch and transformers installed, it is loaded, or use trainer.save_model(DIR), and load DIR"
                ) from error
            self._loaded.config._name_or_path = self.name_or_path  # instead of a temporary directory
        return getattr(self._loaded, name)


def load_exported(export: Callable[[Path], object], kind: Any = None) -> Any:
    """Return the trained model as an object of transformers.

    Args:
        export: Function that writes the trained model to a directory.
        kind: Class of the model; None: what its configuration says.
    """
    importlib.import_module("torch")  # without it the class below exists, and fails unclearly
    kind = kind or importlib.import_module("transformers").AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as directory:
        export(Path(directory))
        return kind.from_pretrained(directory)


def _untrained_adapter(model: Any, peft: Any) -> Any:
    """Return the configuration of the adapter of a `PeftModel`; raise ConfigError if it cannot train here."""
    if peft is not None:
        raise ConfigError(
            "peft_config and a model with an adapter exclude each other; pass the base model, or no peft_config"
        )
    if any(".lora_B." in name and bool(value.any()) for name, value in model.named_parameters()):
        refuse("model", type(model).__name__, "continues its trained adapter", "pass model.merge_and_unload() first")
    return model.peft_config[model.active_adapter]


def _location(path: str, revision: str | None) -> str:
    if os.path.exists(path) or "://" in path or path.startswith(("embedded:", "/", ".")):
        return path
    return f"hf://{path}" + (f"@{revision}" if revision not in (None, "main") else "")


def _local_directory(name: str, revision: str | None) -> Path | None:
    """Return the directory of a model that transformers has loaded; None if it is unknown."""
    if os.path.isdir(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):
        return None


def _loading_values(args: GRPOConfig, quantization: Any) -> dict[str, Any]:
    """Return `model.quantization`, and `revision`, from the arguments of `from_pretrained`."""
    loading = dict(args.model_init_kwargs or {})
    given = {name: value for name, value in loading.items() if name not in (*_LOADING, "dtype", "torch_dtype")}
    revision, quantized = given.pop("revision", None), given.pop("quantization_config", None)
    kind = "nf4" if given.pop("load_in_4bit", False) else "int8" if given.pop("load_in_8bit", False) else None
    if unknown := {name: value for name, value in given.items() if value is not None}:
        refuse(
            "GRPOConfig.model_init_kwargs", unknown, "loads the model", "revision, dtype and quantization_config exist"
        )
    return {"revision": revision, "model.quantization": _quantization(quantization or quantized) or kind}


def _quantization(given: Any) -> str | None:
    """Return `nf4` or `int8` for a `BitsAndBytesConfig`, read by its attributes, or as a mapping."""
    if given is None:
        return None
    read = SimpleNamespace(**given) if isinstance(given, Mapping) else given
    if not getattr(read, "load_in_8bit", False) and not getattr(read, "load_in_4bit", False):
        refuse("quantization_config", given, "quantises the model", "load_in_4bit and load_in_8bit exist")
    return "int8" if getattr(read, "load_in_8bit", False) else "nf4"
