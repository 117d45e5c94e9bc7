"""Reading of configurations that runs wrote, as data.

A run's directory may come from somebody else. Nothing in its `config.yaml` is interpreted: no interpolation,
environment variables, YAML tags or imports. Text is read as the run received it, and values of the wrong type
are refused.
"""

import dataclasses
import re
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from agent_tunix.config.checks import suggest_key
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.plain_yaml import load_plain_yaml

T = TypeVar("T")

# Unknown keys that an error names, and characters of each: looking for similar keys takes time.
_MOST_UNKNOWN, _LONGEST_KEY = 5, 100
_MISSING = "???"
# A match starts at the first of several backslashes, so that a long row of them takes linear time.
_INTERPOLATION = re.compile(r"(?<!\\)(\\*+)\$\{")


def from_yaml_text(content: bytes | str) -> Config:
    """Return the configuration that `to_yaml` wrote; raise ConfigError if the text is not a configuration."""
    try:
        loaded = load_plain_yaml(content)
    except ValueError as error:
        raise ConfigError(
            f"this is not a configuration: {' '.join(str(error).split())}", code="damaged_run_config"
        ) from error
    if not isinstance(loaded, dict) or not loaded:
        raise ConfigError("this is not a configuration: it has no keys", code="damaged_run_config")
    return _instance(loaded, Config, "")


def from_yaml(path: Path) -> Config:
    """Return the configuration that a run wrote.

    Raises:
        ConfigError: The file is missing or is not a run's configuration.
    """
    content = _read(path)
    try:
        return from_yaml_text(content)
    except ConfigError as error:
        said = str(error).removeprefix("this is not a configuration: ")
        text = f"{path} must be the configuration that a run wrote, but: {said}; restore it"
        raise ConfigError(text, code=error.code) from error


def check_yaml(path: Path) -> dict[str, Any]:
    """Check that a run's configuration exists and is complete YAML, and return it unchecked; faster than `from_yaml`.

    Raises:
        ConfigError: The file is missing, empty or damaged.
    """
    try:
        loaded = load_plain_yaml(_read(path))
        if not isinstance(loaded, dict) or not loaded:
            raise ValueError("it has no keys")
        return loaded
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        said = " ".join(str(error).split())
        text = f"{path} must be the configuration that a run wrote, but: {said}; restore it"
        raise ConfigError(text, code="damaged_run_config") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        text = f"{path} does not exist; give the directory of a run, which contains a config.yaml"
        raise ConfigError(text, code="missing_run_config") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", code="damaged_run_config") from error


@cache
def _types_of(schema: Any) -> dict[str, Any]:
    return get_type_hints(schema)


def _instance(values: Mapping[Any, Any], schema: type[T], prefix: str) -> T:
    key: Any = schema
    types_by_name = _types_of(key)
    if unknown := [f"{prefix}{name}" for name in values if name not in types_by_name]:
        shown = [key[:_LONGEST_KEY] for key in unknown[:_MOST_UNKNOWN]]
        lines = [f"there is no key {key}{suggest_key(key, Config)}" for key in shown]
        if (hidden := len(unknown) - len(shown)) > 0:
            lines.append(f"and {hidden:,} more")
        raise ConfigError("\n".join(lines), code="unknown_key")
    return schema(**{name: _typed(value, types_by_name[name], f"{prefix}{name}") for name, value in values.items()})


def _typed(value: Any, wanted: Any, key: str) -> Any:
    """Return the value if it has the wanted type, or converted to it if that loses nothing.

    Raises:
        ConfigError: It has another type.
    """
    if get_origin(wanted) in (Union, types.UnionType):
        if value is None:
            return None
        (wanted,) = (one for one in get_args(wanted) if one is not type(None))
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        if not isinstance(value, dict):
            raise _refusal(key, value, "keys and values")
        return _instance(value, wanted, f"{key}.")
    if wanted is Any:
        return _plain(value, key)
    if get_origin(wanted) is list and isinstance(value, list):
        (of,) = get_args(wanted)
        return [_typed(item, of, f"{key}[{place}]") for place, item in enumerate(value)]
    if get_origin(wanted) is dict and isinstance(value, dict):
        _, of = get_args(wanted)
        return {_text_key(name, key): _typed(item, of, f"{key}.{name}") for name, item in value.items()}
    return _scalar(value, wanted, key)


def _scalar(value: Any, wanted: Any, key: str) -> Any:
    if wanted is str and isinstance(value, str | int | float):
        return _text(value, key) if isinstance(value, str) else str(value)
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted in (int, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            if wanted is float or not isinstance(value, float):
                return wanted(value)
        except (ValueError, OverflowError):
            pass
    raise _refusal(key, value, getattr(wanted, "__name__", str(wanted)))


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{key}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value, key)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise _refusal(key, value, "a plain value")


def _text(value: str, key: str) -> str:
    if value == _MISSING:
        raise ConfigError(f"{key} must have a value, not {_MISSING}", code="missing_value")
    return _INTERPOLATION.sub(lambda found: _unescaped(found, key), value)


def _unescaped(found: re.Match[str], key: str) -> str:
    """Return `${` as it was before `to_yaml` escaped it."""
    backslashes = len(found[1])
    if backslashes % 2 == 0:
        raise ConfigError(
            f"{key} must be a plain value, but contains an interpolation, ${{…}}; replace it by its value, or write "
            "\\${ for the two characters",
            code="stored_interpolation",
        )
    return "\\" * (backslashes // 2) + "${"


def _text_key(name: Any, key: str) -> str:
    if not isinstance(name, str):
        raise _refusal(f"{key}.{name}", name, "text as its name")
    return name


def _refusal(key: str, value: Any, wanted: str) -> ConfigError:
    shown = hex(value) if isinstance(value, int) and abs(value) >= 2**64 else repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return ConfigError(f"{key} must be {wanted}, not {shown}", code="wrong_type")
