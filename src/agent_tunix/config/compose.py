"""Composition of `conf/` over the schema with Hydra, and its conversion to typed values.

Only this module and `cli` use Hydra and OmegaConf.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException, ValidationError

from agent_tunix.config.episodes import VERIFIERS
from agent_tunix.config.other_names import suggest_key
from agent_tunix.config.override_errors import explain_override
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import ConfigError

T = TypeVar("T")

# Groups in which an evaluation may replace values of a run.
EVALUATE_GROUPS = ("model", "data", "prompt", "generation")

_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # not escaped, as `to_yaml` would have it
_AGENT = re.compile(r"^(\+{0,2}environment\.agent)=(?!\s*\{)")  # a function, or null, in place of the group's keys
_NEXT_LINE = "\x85"
_TEXT_TAG = "tag:yaml.org,2002:str"


def find_conf_directory() -> Path:
    """Return the directory of configuration files: in the installed package, or at the top of a checkout."""
    packaged = Path(__file__).resolve().parents[1] / "conf"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "conf"


@functools.cache
def register_schema() -> None:
    """Register the schemas with Hydra once, so that composing checks every key and type.

    Some mappings have user-defined keys: `rewards.args.conciseness.limit=80` needs no `+`.
    """
    schema = OmegaConf.structured(Config)
    _open_mappings(schema)
    store = ConfigStore.instance()
    store.store(name="schema", node=schema)
    request = OmegaConf.structured(EvaluateConfig)
    for group in EVALUATE_GROUPS:
        OmegaConf.set_struct(request[group], False)
    store.store(name="evaluate_schema", node=request)


def _open_mappings(cfg: DictConfig) -> None:
    """Allow new keys in mappings with user-defined keys."""
    open_to_any = (
        cfg.rewards.args,
        cfg.reward.components,
        cfg.optimizer.groups,
        cfg.data.columns,
        cfg.data.mixture,
        cfg.data.tasks,
        cfg.environment.args,
        cfg.prompt.template_args,
    )
    for mapping in open_to_any:
        OmegaConf.set_struct(mapping, False)


def to_typed(cfg: DictConfig) -> Config:
    """Return the composed configuration as a `Config`, with interpolations resolved.

    Raises:
        ConfigError: A key is unknown, a value has the wrong type, a mandatory value (`???`) is missing, or an
            interpolation cannot be resolved.
    """
    return _instantiate(cfg, Config)


def to_evaluate(cfg: DictConfig) -> EvaluateConfig:
    """Return the composed request of `evaluate.py` as plain typed values.

    Raises:
        ConfigError: An interpolation cannot be resolved.
    """
    return _instantiate(cfg, EvaluateConfig)


def _instantiate(cfg: DictConfig, schema: type[T]) -> T:
    plain: Any = OmegaConf.to_container(cfg)
    plain.pop("hydra", None)
    # Merging would drop unknown keys, such as `+training.batchsize=3`, and use the schema's default for `???`.
    unknown = [f"there is no key {key}{suggest_key(key, schema)}" for key in _unknown_keys(plain, schema)]
    try:
        missing = [f"{key} must have a value, not ???; set {key}=VALUE" for key in sorted(OmegaConf.missing_keys(cfg))]
        if unknown or missing:
            raise ConfigError("\n".join(unknown + missing), code="unknown_key" if unknown else "missing_value")
        key: Any = schema
        typed = OmegaConf.to_object(OmegaConf.merge(_structure_of(key), {name: cfg[name] for name in plain}))
    except OmegaConfBaseException as error:
        what, _, _ = str(error).partition("\n")
        where = getattr(error, "full_key", None)
        code = "invalid_config" if isinstance(error, ValidationError) else "invalid_override"
        raise ConfigError(f"{where}: {what}" if where else what, code=code) from error
    assert isinstance(typed, schema)
    return typed


@functools.cache
def _structure_of(schema: type) -> DictConfig:
    """Return a schema as OmegaConf nodes, which merging copies."""
    structured: DictConfig = OmegaConf.structured(schema)
    return structured


def _unknown_keys(values: Mapping[str, Any], schema: type, prefix: str = "") -> Iterator[str]:
    known = {field.name: field.type for field in dataclasses.fields(schema)}
    for name, value in values.items():
        group = known.get(name)
        if name not in known:
            yield from _leaves(value, f"{prefix}{name}")
        elif isinstance(group, type) and dataclasses.is_dataclass(group) and isinstance(value, Mapping):
            yield from _unknown_keys(value, group, f"{prefix}{name}.")


def _leaves(value: Any, key: str) -> Iterator[str]:
    """Yield the dotted keys of what a value contains, such as `actor_rollout_ref.rollout.n`, or its own."""
    if not isinstance(value, Mapping) or not value:
        yield key
        return
    for name, inner in value.items():
        yield from _leaves(inner, f"{key}.{name}")


def compose_overrides(overrides: Sequence[str]) -> Config:
    """Return the configuration of a run, composed as `train` composes it.

    Raises:
        ConfigError: Hydra refuses an override.
    """
    return compose_run(overrides)[0]


def compose_run(overrides: Sequence[str]) -> tuple[Config, Path]:
    """Return the configuration of a run and the directory that Hydra gives it, `hydra.run.dir`.

    Raises:
        ConfigError: Hydra refuses an override.
    """
    cfg, directory = _compose("config", overrides, Config)
    return to_typed(cfg), directory


def compose_evaluate(overrides: Sequence[str]) -> EvaluateConfig:
    """Return the request of `evaluate.py`; raise ConfigError if Hydra refuses an override."""
    return to_evaluate(_compose("evaluate", overrides, EvaluateConfig)[0])


def spell_out(overrides: Sequence[str]) -> list[str]:
    """Return overrides without short forms.

    `environment.agent=FUNCTION` is short for `environment.agent.function=FUNCTION`, and `data=verifiers:NAME` for
    `data=verifiers data.path=NAME` with `environment.name=verifiers:NAME`, unless that is given too.
    """
    spelled: list[str] = []
    has_name = any(override.startswith("environment.name=") for override in overrides)
    for override in overrides:
        _, is_data, name = override.partition(f"data={VERIFIERS}")
        if is_data and override.startswith("data="):
            own = [] if has_name else [f"environment.name={VERIFIERS}{name}"]
            spelled += ["data=verifiers", f"data.path={name}", *own]
        else:
            spelled.append(_AGENT.sub(r"\1.function=", override, count=1))
    return spelled


def _compose(name: str, overrides: Sequence[str], schema: type) -> tuple[DictConfig, Path]:
    """Return a composed configuration and `hydra.run.dir`; raise ConfigError if Hydra refuses an override."""
    register_schema()
    # A Hydra program has its own Hydra instance, which is set aside meanwhile.
    running = GlobalHydra.instance()
    outer, running.hydra = running.hydra, None
    try:
        with initialize_config_dir(str(find_conf_directory()), version_base="1.3"):
            cfg = compose(name, spell_out(overrides), return_hydra_config=True)
            directory = Path(cfg.hydra.run.dir).absolute()
            with open_dict(cfg):
                del cfg.hydra
            return cfg, directory
    except (HydraException, OmegaConfBaseException) as error:
        text = f"{error}" if error.__cause__ is None else f"{error}\n{error.__cause__}"
        raise ConfigError(explain_override(error, text, schema) or text, code="invalid_override") from error
    finally:
        GlobalHydra.instance().hydra = outer


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Return a copy of a configuration with some values replaced, such as `rewards.args.conciseness.limit=80`.

    `overrides` are `KEY=VALUE` in Hydra's grammar, without sweeps, deletions or choices of a group's file.

    Raises:
        ConfigError: An override cannot be read, or its key does not exist.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(spell_out(overrides))
    except HydraException as error:
        raise ConfigError(f"an override must have the form KEY=VALUE: {error}", code="invalid_override") from error
    cfg = _structured(config)
    _open_mappings(cfg)
    for override in parsed:
        if override.is_delete() or override.is_sweep_override() or override.package is not None:
            raise ConfigError(f"{override.input_line}: only KEY=VALUE is allowed here", code="invalid_override")
        _set(cfg, str(override.key_or_group), override.value(), str(override.input_line))
    return to_typed(cfg)


def with_values(config: Config, values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return a copy of a configuration with some values replaced, given as group → key → value.

    Raises:
        ConfigError: A key does not exist, or a value has the wrong type.
    """
    cfg = _structured(config)
    for group, given in values.items():
        for name, value in given.items():
            _set(cfg, f"{group}.{name}", _escape(value), f"{group}.{name}={value}")
    return to_typed(cfg)


def _set(cfg: Any, key: str, value: Any, written: str) -> None:
    try:
        OmegaConf.update(cfg, key, value, merge=isinstance(value, dict))
    except (OmegaConfBaseException, AttributeError) as error:
        what, _, _ = str(error).partition("\n")
        raise ConfigError(f"{written}: {what}{suggest_key(key, Config)}", code="invalid_override") from error


def to_yaml(config: Config, keys: Sequence[str] | None = None) -> str:
    """Return the configuration, or some keys of its groups, as YAML that `from_yaml` reads back."""
    structured = _structured(config)
    if keys is not None:
        structured = _select(structured, keys)
    text = OmegaConf.to_yaml(structured)
    if _NEXT_LINE not in text:
        return text
    # PyYAML writes this character unescaped but reads it as a space; only an escape in quotes preserves it.
    return yaml.dump(OmegaConf.to_container(structured, enum_to_str=True), Dumper=_QuotingDumper, sort_keys=False)


def from_yaml_text(text: str) -> Config:
    """Return the configuration that `to_yaml` wrote.

    Raises:
        ConfigError: The text is no configuration, or has an interpolation, which a run never writes.
    """
    try:
        cfg = OmegaConf.create(text)
    except (yaml.YAMLError, OmegaConfBaseException, RecursionError) as error:
        raise ConfigError(f"it is not YAML: {' '.join(str(error).split())}", code="invalid_run_config") from error
    if not isinstance(cfg, DictConfig) or not cfg:
        raise ConfigError("it has no keys", code="invalid_run_config")
    for value in _texts_in(OmegaConf.to_container(cfg)):
        if _INTERPOLATION.search(value):
            raise ConfigError(
                f"it has the interpolation {value!r:.80}; replace it by its value, or escape it: \\${{",
                code="invalid_run_config",
            )
    return to_typed(cfg)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(item)


def from_yaml(path: Path) -> Config:
    """Return the configuration that a run wrote.

    Raises:
        ConfigError: The file is missing or is not a run's configuration.
    """
    text = _read(path)
    try:
        return from_yaml_text(text)
    except ConfigError as error:
        raise _damage(path, error, error.code) from error


def check_yaml(path: Path) -> dict[str, Any]:
    """Check that a run's configuration exists and is complete YAML, and return it unchecked; faster than `from_yaml`.

    Raises:
        ConfigError: The file is missing, empty or damaged.
    """
    try:
        values = yaml.load(_read(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise _damage(path, error) from error
    if not isinstance(values, dict) or not values:
        raise _damage(path, "it has no keys")
    return values


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        text = f"{path} does not exist; give the directory of a run, which contains a config.yaml"
        raise ConfigError(text, code="invalid_run_config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damage(path, error) from error


def _damage(path: Path, reason: object, code: str = "invalid_run_config") -> ConfigError:
    text = f"{path} must be the configuration that a run wrote, but: {reason}; restore it"
    return ConfigError(text, code=code)


def _select(structured: DictConfig, keys: Sequence[str]) -> DictConfig:
    names: dict[str, list[str]] = {}
    for key in keys:
        group, _, name = key.partition(".")
        names.setdefault(group, []).append(name)
    return DictConfig({group: OmegaConf.masked_copy(structured[group], some) for group, some in names.items()})


class _QuotingDumper(yaml.SafeDumper):
    """YAML dumper that writes every text in double quotes, with escapes for non-ASCII characters."""


_QuotingDumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(_TEXT_TAG, text, style='"'))


def _structured(config: Config) -> DictConfig:
    """Return typed values as OmegaConf nodes, with `${` escaped: it is text, as in a problem with LaTeX."""
    structured = OmegaConf.structured(_escape(config))
    assert isinstance(structured, DictConfig)
    return structured


def _escape(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(value, **{name: _escape(getattr(value, name)) for name in fields})
    if isinstance(value, Mapping):
        return {key: _escape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(?<!\\)(\\*+)\$\{", lambda found: 2 * found[1] + r"\${", value)
    return value
