"""Everything that can be refused before JAX is imported: settings, the model's files, the reward, the data files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import check
from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.schema import Config
from agent_tunix.data import SET_COLUMN, Example, RowError, messages_for, peek_examples
from agent_tunix.data.sources import find_source
from agent_tunix.errors import ConfigError
from agent_tunix.planning.mesh_choice import shape_problems
from agent_tunix.policy.chat.chat_template import read_chat_template
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import find_model_directory, is_on_hub
from agent_tunix.rewards import Mixture, Sample, settle_completions
from agent_tunix.rewards.uploaded import uploaded_source_of
from agent_tunix.runs.reward_setup import components_as_written, resolve_from_config

_NO_LIMIT_MB = 2**30
# Sources that read `data.subset`.
_WITH_SUBSETS = ("huggingface", "tfds")


@dataclass(frozen=True)
class ValidatedConfig:
    """A configuration that can run, and the reward it names.

    Attributes:
        config: The configuration.
        mixture: The reward.
        components: The reward's components as mappings of the configuration, by name.
    """

    config: Config
    mixture: Mixture
    components: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def preflight(config: Config, working_directory: Path, run: Path | None = None) -> ValidatedConfig:
    """Check a configuration as far as is cheap.

    Args:
        config: The composed configuration.
        working_directory: Where relative paths and the user's own modules are looked up.
        run: The run's directory, where uploaded rewards are if it goes on; None: they come from the store.

    Raises:
        ConfigError, ModelError, DataError, RewardError: What is wrong and what to do.
    """
    check(config)
    _check_subset(config)
    if not is_on_hub(config.model):  # A download belongs to the run, and to its log.
        _check_mesh(config, find_model_directory(config.model))
    if config.prompt.chat_template is not None:
        read_chat_template(config.prompt.chat_template)
    examples = peek_examples(config)
    mixture = resolve_from_config(config, working_directory, run)
    for name, example in examples.items():
        mixture.check_parameters(example.columns, {} if name is None else {SET_COLUMN: name})
    for name, example in examples.items():
        settle_rewards(mixture, example, config, {} if name is None else {SET_COLUMN: name})
    return ValidatedConfig(config, mixture, components_as_written(config, working_directory))


def _check_mesh(config: Config, directory: Path) -> None:
    """Refuse a mesh that cannot divide the model.

    Raises:
        ConfigError: With the sizes that it does not divide.
    """
    shape = read_mesh_shape(config.model.mesh_shape)
    if shape is None or shape.weight_shards == 1:
        return
    if problems := shape_problems(read_architecture(directory), shape, config.model.quantization):
        raise ConfigError("\n".join(problems), code="indivisible_model")


def _check_subset(config: Config) -> None:
    """Refuse `data.subset` where no source reads it.

    Raises:
        ConfigError: It would do nothing.
    """
    sets = {f"data.mixture.{name}.": one.config for name, one in data_sets(config).items()} or {"data.": config}
    for prefix, of_set in sets.items():
        given = of_set.data.subset
        inherited = prefix != "data." and given == config.data.subset  # some other set may read it
        if given is None or inherited:
            continue
        source = find_source(of_set, "train")
        if source not in _WITH_SUBSETS:
            raise ConfigError(
                f"{prefix}subset={given} is not read by the source {source}, but by {', '.join(_WITH_SUBSETS)};"
                f" set {prefix}subset=null, or another {prefix}source",
                code="unread_subset",
            )


def settle_rewards(mixture: Mixture, example: Example, config: Config, fixed: Mapping[str, Any] | None = None) -> None:
    """Find out what batch functions take, as `rewards.completions` says, by trying them on an example.

    Args:
        mixture: The reward.
        example: Any row that it may be asked about.
        config: Gives the limits.
        fixed: Columns that are the same in all such rows; components that they exclude are left alone.
    """
    settings, sample = config.rewards, _sample_of(example, config)
    rewards = [component.reward for component in mixture.components if not component.route.excludes(fixed or {})]
    uploaded = [reward for reward in rewards if uploaded_source_of(reward) is not None]
    own = [reward for reward in rewards if uploaded_source_of(reward) is None]
    # Code that is to run here has no limit there either.
    settle_completions(own, sample, memory_mb=_NO_LIMIT_MB if settings.execution == "inline" else settings.memory_mb)
    settle_completions(uploaded, sample, memory_mb=settings.memory_mb, allow_unsandboxed=settings.allow_unsandboxed)


def _sample_of(example: Example, config: Config) -> Sample:
    """A made-up completion of an example, to try rewards with."""
    try:
        messages = messages_for(config.prompt, example)
    except RowError:  # it is dropped and counted when prompts are made
        messages = [{"role": "user", "content": example.prompt}]
    response = f"<reasoning>It is known.</reasoning>\n<answer>{example.columns.get('answer', '')}</answer>"
    return Sample(
        response,
        prompt=example.prompt,
        messages=(*messages, {"role": "assistant", "content": response}),
        columns=example.columns,
        format=config.prompt.format,
        rollout_id="0_0_0",
        num_tokens=1,
        tokens=(0,),
    )
