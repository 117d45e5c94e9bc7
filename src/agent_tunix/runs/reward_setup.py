"""The reward of a configuration. Importing this module does not load JAX."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.config.compose import find_conf_directory
from agent_tunix.config.schema import Config, RewardsConfig
from agent_tunix.errors import RewardError
from agent_tunix.rewards import Mixture, resolve_reward
from agent_tunix.rewards.answers.verifiers import VERIFIERS
from agent_tunix.rewards.builtin import correctness
from agent_tunix.rewards.execution import Runner, make_runner
from agent_tunix.rewards.finding import function_name
from agent_tunix.rewards.registry import is_name, is_shipped
from agent_tunix.rewards.resolve import read_components, read_components_file
from agent_tunix.runs.uploaded_rewards import make_fetch
from agent_tunix.tracking.own_code import explaining_missing

# Values of `evaluation.correct` that always name the built-in reward, also if the user registers one of that name.
BUILTIN_MEASURES = ("math", "answer_correctness", "multiple_choice", "exact_match", "code_tests")
OWN_REWARD = "reward"  # the value of `evaluation.correct` for the run's own reward


def resolve_from_config(config: Config, working_directory: Path, run: Path | None = None) -> Mixture:
    """Return the reward of the group `reward=` if it is chosen, else of `training.reward_function`.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        run: Directory of the run that the configuration belongs to, which holds the uploaded rewards it was trained
            on; None to fetch uploaded rewards from the store.
    """
    return _resolve(
        reward_spec(config, working_directory),
        config,
        working_directory,
        run,
        config.rewards.modules,
        config.rewards.args,
    )


def resolve_correct(config: Config, working_directory: Path, run: Path | None = None) -> Mixture | None:
    """Return the reward that `evaluation.correct` names; None if it is a built-in measure or the run's own reward.

    The arguments are those of `resolve_from_config`.
    """
    spec, modules = correct_spec(config)
    return None if spec is None else _resolve(spec, config, working_directory, run, modules)


def correct_spec(config: Config) -> tuple[str | None, Sequence[str]]:
    """Return the specification of the reward that `resolve_correct` resolves, and the modules to import first.

    Only a bare name may be registered by a module; a file or a dotted path stands for itself.
    """
    spec = config.evaluation.correct
    if spec in (*BUILTIN_MEASURES, OWN_REWARD) or config.evaluation.num_samples == 0:
        return None, ()
    return spec, config.rewards.modules if is_name(spec) else ()


def _resolve(
    spec: Any,
    config: Config,
    working_directory: Path,
    run: Path | None,
    modules: Sequence[str],
    args: Mapping[str, Any] | None = None,
) -> Mixture:
    with explaining_missing(run):
        return resolve_reward(
            spec,
            modules=modules,
            args=args,
            reward_directories=reward_directories(working_directory),
            working_directory=working_directory,
            on_failure=config.rewards.on_failure,
            convention=config.rewards.convention,
            completions=config.rewards.completions,
            reward_key=config.rewards.reward_key,
            fetch=make_fetch(run),
        )


def components_as_written(config: Config, working_directory: Path) -> dict[str, dict[str, Any]]:
    """Return the components of the reward by name, as the configuration writes them."""
    return read_components(
        reward_spec(config, working_directory),
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )


def reward_spec(config: Config, working_directory: Path) -> Any:
    """Return the value that names the reward: the components of `reward=`, else `training.reward_function`.

    Components without a function change those of `training.reward_function`, as `reward.components.brevity.weight=0.9`
    does, and components with one are added to them.

    Raises:
        RewardError: A component without a function is not among those of `training.reward_function`.
    """
    components, chosen = config.reward.components, config.training.reward_function
    changed = [name for name, one in components.items() if is_change(one)]
    if not changed:
        return components or chosen
    named = _named_components(chosen, working_directory)
    if unknown := [name for name in changed if name not in named]:
        raise RewardError(
            f"reward.components.{unknown[0]} requires a function, or a component of that name in "
            f"training.reward_function={chosen}, which has {', '.join(named)}; set "
            f"reward.components.{unknown[0]}.function"
        )
    return {**named, **{name: {**named[name], **one} if name in changed else one for name, one in components.items()}}


def components_without_code(config: Config, working_directory: Path) -> dict[str, dict[str, Any]]:
    """Return the components of the reward by name, as they are written; imports no code of the user or the run."""
    return _named_components(reward_spec(config, working_directory), working_directory)


def correct_without_code(config: Config, working_directory: Path) -> dict[str, dict[str, Any]]:
    """Return the same of the reward that `evaluation.correct` names; nothing for a built-in measure."""
    spec, _ = correct_spec(config)
    return {} if spec is None else _named_components(spec, working_directory)


def _named_components(spec: Any, working_directory: Path) -> dict[str, dict[str, Any]]:
    if not isinstance(spec, str):
        return read_components(spec)
    file = components_file(spec, working_directory)
    return read_components(read_components_file(file) if file else {function_name(spec): spec})


def components_file(spec: str, working_directory: Path) -> Path | None:
    """Return the component file that a name stands for; imports no code of the user or the run."""
    # Names that the user's modules would register are left out, because trust may not be settled yet.
    files = (directory / f"{spec}.yaml" for directory in reward_directories(working_directory))
    return next((file for file in files if is_name(spec) and not is_shipped(spec) and file.is_file()), None)


def is_change(component: Any) -> bool:
    """Return True if a component of the configuration has no function. It then changes one of another mixture."""
    return isinstance(component, Mapping) and "function" not in component


def reward_directories(working_directory: Path) -> list[Path]:
    """Return the directories of component files: that of the working directory, then that of the package."""
    return [working_directory / "conf" / "reward", find_conf_directory() / "reward"]


def begin_verifiers(mixture: Mixture, execution: str) -> None:
    """Start the process that compares difficult answers, if an inline component needs it.

    The process takes a second to start, and the first step would wait for it. Rewards in workers start their own.

    Args:
        mixture: The reward, before it is placed in workers.
        execution: Value of `rewards.execution`.
    """
    given = (getattr(component.reward, "definition", None) for component in mixture.components)
    is_inline = execution in ("auto", "inline")
    if is_inline and any(getattr(one, "__module__", None) == correctness.__name__ for one in given):
        VERIFIERS.begin()


def make_reward_runner(mixture: Mixture, rewards: RewardsConfig) -> Runner[Mixture]:
    """Return the runner of a mixture, which holds its workers and applies its limits."""
    return make_runner(
        mixture,
        rewards.execution,
        timeout_s=rewards.timeout_s,
        memory_mb=rewards.memory_mb,
        num_workers=rewards.num_workers,
        max_concurrency=rewards.max_concurrency,
        recycle_after=rewards.recycle_after,
        start_timeout_s=rewards.start_timeout_s,
        allow_unsandboxed=rewards.allow_unsandboxed,
    )
