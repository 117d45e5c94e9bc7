"""The values of a `config.json`, each checked when it is read; loads no JAX."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import LayerKind, Rope

# Parameters that each kind of rotary embedding needs besides its base.
_ROPE_KEYS = {
    "default": (),
    "linear": ("factor",),
    "proportional": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_slow", "beta_fast"),
}
_YARN_DEFAULTS = {"beta_slow": 1.0, "beta_fast": 32.0}
_CONTEXT = "max_position_embeddings"


def read_context_length(directory: Path) -> int | None:
    """Return the longest text of a model in tokens, `max_position_embeddings` of its config.json; None if unknown.

    Raises:
        ModelError: The file cannot be read.
    """
    values = ConfigFile.read(directory / "config.json").values
    inner = values.get("text_config")
    places = (values, inner if isinstance(inner, dict) else {})
    length = next((place[_CONTEXT] for place in places if _CONTEXT in place), None)
    return length if isinstance(length, int) and length > 0 else None


class ConfigFile:
    """Values by their names in the file. A null counts as a missing key.

    Error messages name the file, the key, the value found and the values accepted.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Wrap the values of a file.

        Args:
            path: Path of the file, for messages.
            values: Values of the file, or of an object in it.
            defaults: Values of keys that are missing in the file.
        """
        self.path = path
        self.values = dict(values)
        self._defaults = dict(defaults or {})

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Return the content of a file.

        Raises:
            ModelError: The file cannot be read, or is not a JSON object.
        """
        try:
            values = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read as JSON: {error}", code="invalid_model_config") from error
        if not isinstance(values, dict):
            raise ModelError(f"{path} must contain an object, not {type(values).__name__}", code="invalid_model_config")
        return cls(path, values)

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ConfigFile":
        """Return the same values with other defaults."""
        return ConfigFile(self.path, self.values, defaults)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value unchecked."""
        for value in (self.values.get(name), self._defaults.get(name), default):
            if value is not None:
                return value
        return None

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number above 0.

        Raises:
            ModelError: The key is missing and has no default, or the value is something else.
        """
        value = self._required(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(
                f"{self.path}: {name} must be a whole number above 0, not {value!r}", code="invalid_model_config"
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number above 0.

        Raises:
            ModelError: The key is missing and has no default, or the value is something else.
        """
        return self._positive(name, self._required(name, default))

    def share(self, name: str) -> float:
        """Return a number above 0 and at most 1; 1 if the key is missing.

        Raises:
            ModelError: The value is something else.
        """
        value = self.number(name, 1.0)
        if value > 1:
            raise ModelError(f"{self.path}: {name} must be at most 1, not {value:g}", code="invalid_model_config")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean.

        Raises:
            ModelError: The key is missing and has no default, or the value is something else.
        """
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.path}: {name} must be true or false, not {value!r}", code="invalid_model_config")
        return value

    def cap(self, name: str) -> float | None:
        """Return a bound of logits, or None for no bound. A null means no bound; a missing key means the default."""
        value = self.values.get(name, self._defaults.get(name))
        return None if value is None else self._positive(name, value)

    def section(self, name: str) -> dict[str, Any]:
        """Return an object in the file, or an empty one if the key is missing.

        Raises:
            ModelError: The value is not an object.
        """
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise ModelError(f"{self.path}: {name} must be an object, not {value!r}", code="invalid_model_config")
        return value

    def allow(self, name: str, *supported: Any) -> None:
        """Refuse a value that is present and not supported.

        Raises:
            ModelError: The value is none of those supported.
        """
        value = self.get(name)
        if value is not None and value not in supported:
            only = " or ".join(repr(each) for each in supported)
            raise ModelError(
                f"{self.path}: {name} = {value!r:.100} is not supported{f', only {only}' if only else ''};"
                " the model would be computed differently than in training",
                code="unsupported_model",
            )

    def layer_kinds(
        self, slides: Callable[[int], bool] | None, other: LayerKind = "sliding_attention"
    ) -> tuple[LayerKind, ...]:
        """Return the kind of each layer, from `layer_types` if the file has it.

        Args:
            slides: Function for files without `layer_types`. It returns True if a layer, counted from 0, is of the
                other kind. None if all layers of the family see all positions.
            other: The family's other kind.
        """
        count = self.whole("num_hidden_layers")
        default = [other if slides is not None and slides(n) else "full_attention" for n in range(count)]
        kinds = self.get("layer_types", default)
        allowed = ("full_attention",) if slides is None else ("full_attention", other)
        if not isinstance(kinds, list) or len(kinds) != count or not all(kind in allowed for kind in kinds):
            raise ModelError(
                f"{self.path}: layer_types must be a list of {count} names, each one of {', '.join(allowed)}, not"
                f" {kinds!r}",
                code="invalid_model_config",
            )
        return tuple(kinds)

    def rope(self, default_theta: float, default_share: float | None = None) -> Rope:
        """Return the rotary embedding of all layers, from `rope_scaling` (older files) or `rope_parameters`.

        Args:
            default_theta: Base if the file has none.
            default_share: Share of a head that is rotated if the parameters do not say; None if the family always
                rotates all of it.
        """
        name = "rope_scaling" if self.section("rope_scaling") else "rope_parameters"
        parameters = self.section(name)
        if any(isinstance(value, dict) for value in parameters.values()):
            raise ModelError(
                f"{self.path}: {name} must not differ between kinds of layers, not {parameters!r}",
                code="unsupported_model",
            )
        share = None
        if default_share is not None:
            factor = {"partial_rotary_factor": parameters.get("partial_rotary_factor")}
            share = ConfigFile(self.path, factor).number("partial_rotary_factor", default_share)
            parameters = {key: value for key, value in parameters.items() if key != "partial_rotary_factor"}
        rope = self._make_rope(name, parameters, "rope_theta", default_theta)
        return rope if share is None else replace(rope, rotated_share=share)

    def rope_of(self, kind: LayerKind, old_theta: str, default_theta: float) -> Rope:
        """Return the rotary embedding of a kind of layer. `rope_scaling` applies to layers that see all positions.

        Args:
            kind: Kind of layer.
            old_theta: Key of the base if `rope_parameters` does not have it.
            default_theta: Base if the file has none.
        """
        name = "rope_parameters"
        by_kind = self.section(name)
        if not all(isinstance(value, dict) for value in by_kind.values()):
            raise ModelError(
                f"{self.path}: {name} must contain an object for each kind of layer, not {by_kind!r}",
                code="unsupported_model",
            )
        parameters = by_kind.get(kind, {})
        if kind == "full_attention" and self.section("rope_scaling"):
            name, parameters = "rope_scaling", {**parameters, **self.section("rope_scaling")}
        return self._make_rope(name, parameters, old_theta, default_theta)

    def _make_rope(self, name: str, parameters: Mapping[str, Any], old_theta: str, default_theta: float) -> Rope:
        rope_type = parameters.get("rope_type", parameters.get("type", "default"))
        if not isinstance(rope_type, str) or rope_type not in _ROPE_KEYS:
            raise ModelError(
                f"{self.path}: the type of {name} must be one of {', '.join(_ROPE_KEYS)}, not {rope_type!r}",
                code="unsupported_model",
            )
        inner = ConfigFile(self.path, {f"{name}.{key}": value for key, value in parameters.items()})
        share = f"{name}.partial_rotary_factor"
        if rope_type != "proportional":
            inner.allow(share, 1.0)
        theta = inner.number(f"{name}.rope_theta", self.number(old_theta, default_theta))
        if rope_type == "default":
            return Rope(theta)
        if rope_type == "proportional":
            return Rope(theta, "proportional", inner.number(f"{name}.factor", 1.0), rotated_share=inner.share(share))
        factor, *bounds = (inner.number(f"{name}.{key}", _YARN_DEFAULTS.get(key)) for key in _ROPE_KEYS[rope_type])
        if factor < 1:
            raise ModelError(
                f"{self.path}: {name}.factor must be at least 1, not {factor:g}", code="invalid_model_config"
            )
        if rope_type == "linear":
            return Rope(theta, "linear", factor)
        low, high = bounds
        if low >= high:
            _, low_key, high_key = _ROPE_KEYS[rope_type]
            raise ModelError(
                f"{self.path}: {name}.{low_key} must be below {high_key}, but {low:g} is not below {high:g}",
                code="invalid_model_config",
            )
        key = "original_max_position_embeddings"
        # As in transformers, the top-level key takes precedence over the one among the parameters.
        length = self.get(key) or inner.get(f"{name}.{key}") or self.whole("max_position_embeddings")
        length = ConfigFile(self.path, {key: length}).whole(key)
        if rope_type == "llama3":
            return Rope(theta, "llama3", factor, low, high, length)
        for variant, *neutral in (("mscale",), ("mscale_all_dim",), ("truncate", True)):
            inner.allow(f"{name}.{variant}", *neutral)
        if theta <= 1:
            raise ModelError(
                f"{self.path}: {name}.rope_theta must be above 1, not {theta:g}", code="invalid_model_config"
            )
        magnitude = inner.number(f"{name}.attention_factor", 0.1 * math.log(factor) + 1.0)
        return Rope(theta, "yarn", factor, low, high, length, magnitude)

    def _required(self, name: str, default: Any) -> Any:
        value = self.get(name, default)
        if value is None:
            raise ModelError(
                f"{self.path} lacks {name!r}; check that it was saved with the weights", code="invalid_model_config"
            )
        return value

    def _positive(self, name: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise ModelError(
                f"{self.path}: {name} must be a number above 0, not {value!r}", code="invalid_model_config"
            )
        return float(value)
