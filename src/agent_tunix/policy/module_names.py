"""Names of a decoder's modules, and the pattern that selects those with an adapter; loads no JAX."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.files.tensors import list_tensors

# The projections of attention, and those of attention and MLP, in every family. They leave out linear attention's small
# projections, which have few outputs and set how long a state lasts.
_ATTENTION = ".*(q_proj|k_proj|v_proj|o_proj)"
_ATTENTION_AND_MLP = ".*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|in_proj_qkv|in_proj_z|out_proj)"


def adapter_pattern(config: ModelConfig, architecture: Architecture) -> str:
    """Return `model.lora_module_path`. Null means attention and MLP, or attention only in a model with experts."""
    if config.lora_module_path is not None:
        return config.lora_module_path
    return _ATTENTION if architecture.num_experts else _ATTENTION_AND_MLP


def check_experts(config: ModelConfig, architecture: Architecture) -> None:
    """Refuse quantised weights and adapters outside attention for a model with experts.

    In such a model, PEFT would treat an adapter on any MLP as one on the experts.

    Raises:
        ConfigError: `model.quantization` is set, or `model.lora_module_path` matches a router, an expert or an MLP.
    """
    if architecture.num_experts == 0 or config.lora_rank == 0:
        return
    if config.quantization is not None:
        raise ConfigError(
            f"model.quantization must be null for a model with experts ({architecture.model_type}), not "
            f"{config.quantization}, because stacks of experts cannot be quantised; divide the model over more devices "
            "along tp or fsdp of model.mesh_shape instead"
        )
    pattern = adapter_pattern(config, architecture)
    names = (tensor.name.removesuffix(".weight") for tensor in list_tensors(architecture) if ".mlp." in tensor.name)
    if (name := next((each for each in names if matches(pattern, each)), None)) is not None:
        raise ConfigError(
            f"model.lora_module_path must match only projections of attention in a model with experts, but {pattern!r} "
            f"matches {name}; use {_ATTENTION!r}, or null"
        )


def name_of(path: Iterable[Any]) -> str:
    """Return the dotted name of a module, as in a Hugging Face directory: `layers.0.self_attn.q_proj`."""
    return ".".join(str(part) for part in path)


def matches(pattern: str, name: str) -> bool:
    """Return True if the pattern matches the whole name, with dots or with slashes as in Qwix and Tunix."""
    return any(re.fullmatch(pattern, spelling) for spelling in (name, name.replace(".", "/")))


def explain_no_match(pattern: str, projections: Sequence[str], others: Sequence[str]) -> str:
    """Return an error message for a pattern that matches no projection, with a suggestion."""
    message = f"model.lora_module_path {pattern!r} matches no projection of the model"
    if others:
        message += f", only {abbreviate(others)}; norms and embeddings cannot have an adapter"
    core = pattern.removeprefix(".*").removesuffix(".*")
    loose = f".*({core}).*" if "|" in core else f".*{core}.*"
    leaf = re.split(r"[./\\*|()]+", pattern.rstrip(".*|()/\\"))[-1]
    near = difflib.get_close_matches(leaf, sorted({name.rpartition(".")[2] for name in projections}), n=1)
    if any(matches(loose, name) for name in projections):
        message += f"; it must match the whole name, for example {loose!r}"
    elif near:
        message += f"; did you mean {'.*' + near[0]!r}?"
    return f"{message}\nThere are: {abbreviate(projections)}"


def abbreviate(names: Iterable[str]) -> str:
    """Return names as text, with layers and last parts grouped: `layers.0-27.self_attn.{q_proj,k_proj}`."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        number = re.search(r"(?<=\.)\d+(?=\.|$)", name)
        template = f"{name[: number.start()]}*{name[number.end() :]}" if number else name
        numbers.setdefault(template, []).append(int(number[0]) if number else 0)
    leaves: dict[str, list[str]] = {}
    for template, layers in numbers.items():
        module, dot, leaf = template.replace("*", ",".join(_spans(layers))).rpartition(".")
        leaves.setdefault(module + dot, []).append(leaf)
    return ", ".join(
        f"{module}{parts[0] if len(parts) == 1 else '{' + ','.join(parts) + '}'}" for module, parts in leaves.items()
    )


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    """Yield ranges of consecutive numbers: 0, 1, 2, 5 → 0-2, 5."""
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        if number is not None:
            first = last = number
