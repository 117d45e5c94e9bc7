"""Names of a decoder's modules, and the pattern that selects those with an adapter; loads no JAX."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import regex

from agent_tunix.errors import ConfigError

# The projections of attention and MLP, in every family.
_TIMEOUT_S = 1.0
# Of linear attention all but those of a few outputs each, which set how long a state lasts.
DEFAULT_PATTERN = ".*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|in_proj_qkv|in_proj_z|out_proj)"


def name_of(path: Iterable[Any]) -> str:
    """Return the dotted name of a module, as in a Hugging Face directory: `layers.0.self_attn.q_proj`."""
    return ".".join(str(part) for part in path)


def matches(pattern: str, name: str) -> bool:
    """Return True if the pattern matches the whole name, with dots or with slashes as in Qwix and Tunix.

    Raises:
        ConfigError: The pattern takes too long, as `(.|..)*[!?]` does, which tries each division of the name.
    """
    try:
        return any(regex.fullmatch(pattern, one, timeout=_TIMEOUT_S) for one in (name, name.replace(".", "/")))
    except TimeoutError:
        raise ConfigError(
            f"model.lora_module_path {pattern!r} takes longer than {_TIMEOUT_S:g} s for {name}; do not repeat"
            " alternatives that match the same text, as (.|..)* does",
            code="slow_pattern",
        ) from None


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
        found = re.search(r"(?<=\.)\d+(?=\.|$)", name)
        template = f"{name[: found.start()]}*{name[found.end() :]}" if found else name
        numbers.setdefault(template, []).append(int(found[0]) if found else 0)
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
