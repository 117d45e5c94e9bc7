"""Checks of a configuration before JAX is imported: settings, the model's files, the reward, the data files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import check
from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.episodes import has_environment
from agent_tunix.config.harnesses import harness_tasks
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.schema import Config
from agent_tunix.data import SET_COLUMN, Example, RowError, messages_for, peek_examples, peek_held_out
from agent_tunix.data.sources import find_source
from agent_tunix.errors import ConfigError
from agent_tunix.planning.mesh_choice import shape_problems
from agent_tunix.policy.chat.chat_template import read_chat_template
from agent_tunix.policy.chat.teacher_template import TeacherTemplate, read_teacher_prompt
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import find_model_directory, is_on_hub
from agent_tunix.policy.files.teacher import TEACHER, check_teacher, has_teacher_model, teacher_model
from agent_tunix.policy.module_names import check_experts
from agent_tunix.rewards import EpisodeSummary, Mixture, Sample, settle_completions
from agent_tunix.rewards.execution.probe import try_rewards
from agent_tunix.rewards.uploaded import uploaded_source_of
from agent_tunix.runs.algorithm_setup import register_own_algorithm
from agent_tunix.runs.environment_setup import check_environments
from agent_tunix.runs.reward_setup import OWN_REWARD, components_as_written, resolve_correct, resolve_from_config
from agent_tunix.tracking.own_code import explaining_missing

_NO_LIMIT_MB = 2**30
# Sources that read `data.subset`.
_WITH_SUBSETS = ("huggingface", "tfds")


@dataclass(frozen=True)
class ValidatedConfig:
    """A configuration that passed `preflight`, and its reward."""

    config: Config
    mixture: Mixture  # the reward
    # The reward's components by name, as the configuration writes them.
    components: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The reward that `evaluation.correct` names; None for a built-in measure or the run's own reward.
    correct: Mixture | None = None


def preflight(
    config: Config, working_directory: Path, run: Path | None = None, *, trains_reward: bool = True
) -> ValidatedConfig:
    """Make all cheap checks, and resolve the reward.

    Args:
        config: The composed configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        run: Directory of the run, which holds its uploaded rewards if the run is resumed; None to fetch them from the
            store.
        trains_reward: False if the run trains by no reward. Then the reward must fit the rows only if evaluations use
            it.

    Raises:
        ConfigError, ModelError, DataError, RewardError: A check failed; the message says what to do.
    """
    check(config)
    _check_subset(config)
    with explaining_missing(run):
        register_own_algorithm(config, working_directory)
    if not is_on_hub(config.model):  # The run downloads a hub's model, so that its log reports the download.
        _check_model(config, find_model_directory(config.model))
    if has_teacher_model(config):
        teacher = teacher_model(config)
        if not (is_on_hub(config.model) or is_on_hub(teacher, TEACHER)):
            check_teacher(config, find_model_directory(config.model), find_model_directory(teacher, TEACHER))
    if config.prompt.chat_template is not None:
        read_chat_template(config.prompt.chat_template)
    for task in harness_tasks(config.evaluation):
        task.find_program()
    examples = peek_examples(config)
    if (prompt := config.grpo.teacher_prompt) is not None:
        template = TeacherTemplate(read_teacher_prompt(prompt))
        for row in examples.values():
            template.check(row.columns, row.prompt)
    with explaining_missing(run):
        check_environments(config, working_directory, examples)
    mixture = resolve_from_config(config, working_directory, run)
    _check_filter(mixture, config)
    if trains_reward or config.evaluation.with_rewards or config.evaluation.correct == OWN_REWARD:
        _fit(mixture, examples, config)
    correct = resolve_correct(config, working_directory, run)
    if correct is not None:
        _fit(correct, examples, config)
    return ValidatedConfig(config, mixture, components_as_written(config, working_directory), correct)


def resolve_for_evaluation(
    config: Config, working_directory: Path, run: Path | None = None, *, with_reward: bool
) -> tuple[Mixture | None, Mixture | None]:
    """Return the rewards that score the completions of an evaluation, checked on a held-out row.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        run: Directory of the run, which holds its uploaded rewards; None without a run.
        with_reward: True if the run's own reward scores them.

    Returns:
        The run's own reward (None without `with_reward`), and the reward from `resolve_correct`.

    Raises:
        DataError, RewardError: A reward cannot be resolved, or does not fit the data.
    """
    mixture = resolve_from_config(config, working_directory, run) if with_reward else None
    correct = resolve_correct(config, working_directory, run)
    for one in filter(None, (mixture, correct)):
        _fit(one, peek_held_out(config), config)
    return mixture, correct


def _fit(mixture: Mixture, examples: Mapping[str | None, Example], config: Config) -> None:
    """Check that the rows have the columns that a reward needs, and settle the form in which it takes completions."""
    for name, example in examples.items():
        mixture.check_parameters(example.columns, {} if name is None else {SET_COLUMN: name})
    for name, example in examples.items():
        settle_rewards(mixture, example, config, {} if name is None else {SET_COLUMN: name})


def _check_filter(mixture: Mixture, config: Config) -> None:
    names = [component.name for component in mixture.components]
    if config.grpo.filter_by is not None and config.grpo.filter_by not in names:
        raise ConfigError(
            f"grpo.filter_by must be a component of the reward, {', '.join(names)}, not {config.grpo.filter_by!r}; null"
            " judges by the total",
            code="invalid_mixture",
        )


def _check_model(config: Config, directory: Path) -> None:
    """Refuse a mesh that cannot divide the model, and settings that `check_experts` refuses.

    Raises:
        ConfigError: The mesh does not divide some sizes, which the message lists, or `check_experts` raises the error.
    """
    architecture = read_architecture(directory)
    check_experts(config.model, architecture)
    shape = read_mesh_shape(config.model.mesh_shape)
    if shape is None or shape.weight_shards == 1:
        return
    if problems := shape_problems(architecture, shape, config.model.quantization):
        raise ConfigError("\n".join(problems), code="indivisible_model")


def _check_subset(config: Config) -> None:
    """Refuse `data.subset` if the source ignores it.

    Raises:
        ConfigError: The source of a set does not read its subset.
    """
    sets = {f"data.mixture.{name}.": one.config for name, one in data_sets(config).items()} or {"data.": config}
    for prefix, of_set in sets.items():
        given = of_set.data.subset
        inherited = prefix != "data." and given == config.data.subset  # another set of the mixture may read it
        if given is None or inherited:
            continue
        source = find_source(of_set, "train")
        if source not in _WITH_SUBSETS:
            raise ConfigError(
                f"{prefix}subset={given} has no effect with the source {source}; it applies to "
                f"{', '.join(_WITH_SUBSETS)}; set {prefix}subset=null, or another {prefix}source"
            )


def settle_rewards(mixture: Mixture, example: Example, config: Config, fixed: Mapping[str, Any] | None = None) -> None:
    """Call the user's rewards on an example, to settle the form of completions and to warn of a reward that fails.

    Args:
        mixture: The reward.
        example: Any row that the reward may score.
        config: The run's, for the limits on rewards.
        fixed: Columns that are the same in all such rows. Components that exclude them are not called.
    """
    settings, sample = config.rewards, _sample_of(example, config)
    rewards = [component.reward for component in mixture.components if not component.route.excludes(fixed or {})]
    uploaded = [reward for reward in rewards if uploaded_source_of(reward) is not None]
    own = [reward for reward in rewards if uploaded_source_of(reward) is None]
    decided = [reward for reward in own if not getattr(reward, "is_open", False)]
    # Inline rewards run without a memory limit, so the trial has none either.
    memory_mb = _NO_LIMIT_MB if settings.execution == "inline" else settings.memory_mb
    timeout_s, start_timeout_s = settings.timeout_s, settings.start_timeout_s
    settle_completions(own, sample, timeout_s=timeout_s, start_timeout_s=start_timeout_s, memory_mb=memory_mb)
    if not has_environment(config):  # a made-up completion is no episode
        try_rewards(decided, sample, timeout_s=timeout_s, start_timeout_s=start_timeout_s, memory_mb=memory_mb)
    settle_completions(
        uploaded,
        sample,
        timeout_s=timeout_s,
        start_timeout_s=start_timeout_s,
        memory_mb=settings.memory_mb,
        allow_unsandboxed=settings.allow_unsandboxed,
    )


def _sample_of(example: Example, config: Config) -> Sample:
    """Return an invented completion or episode of an example, to call rewards with."""
    try:
        messages = messages_for(config.prompt, example)
    except RowError:  # encoding the prompts drops and counts this row
        messages = [{"role": "user", "content": example.prompt}]
    response = f"<reasoning>It is known.</reasoning>\n<answer>{example.columns.get('answer', '')}</answer>"
    turns: list[dict[str, Any]] = []
    episode = None
    if has_environment(config):
        function = {"name": "tool", "arguments": "{}"}
        call = {"id": "call_0", "type": "function", "function": function}
        turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": "call_0", "name": "tool", "content": "It is known."})
        episode = EpisodeSummary("finished", 2, len(messages), text=f"It is known.\n{response}")
    return Sample(
        response,
        prompt=example.prompt,
        messages=(*messages, *turns, {"role": "assistant", "content": response}),
        columns=example.columns,
        format=config.prompt.format,
        step=1,
        max_steps=config.training.num_batches or 1,
        rollout_id="0_0_0",  # an id that no completion of a training step has
        num_tokens=1,
        tokens=(0,),
        episode=episode,
    )
