"""`train`, `sft` and `prefer`: from overrides and objects of Python to a finished run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.api.objects import Objects
from agent_tunix.api.process import check_arguments, prepare, run_here
from agent_tunix.api.run import Run
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.tracking.callbacks import Callback

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config
    from agent_tunix.training.launch import Method


def train(
    *overrides: str,
    reward: Any = None,
    environment: Any = None,
    tools: Sequence[Any] | None = None,
    agent: Any = None,
    data: Any = None,
    evaluation_data: Any = None,
    directory: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train with GRPO, as `agent-tunix train` does, and return the run.

    Args:
        overrides: Overrides of the command line, such as `training.num_batches=20`.
        reward: A name, a function, a list of these, or a mapping of components; None: what the overrides choose.
        environment: A name, a class, a function that makes an instance, or a mapping {name: environment} from which
            rows choose.
        tools: Names, functions or classes whose methods are tools.
        agent: A name, or a function of a row and perhaps a client, which calls the policy over HTTP itself.
        data: Rows, a data frame, an Arrow table, a `datasets.Dataset`, a path, or a mapping from splits to these;
            None: what the overrides choose. Rows in memory without held-out rows switch off the evaluation.
        evaluation_data: Held-out rows, in the same forms.
        directory: Directory of the run; None: `outputs/PROJECT/DATE/TIME`.
        callbacks: Code to call around the steps.

    Raises:
        AgentTunixError: The run cannot start, or it stopped; the message says what to do.
        Interrupted: The cell or the program was interrupted; a checkpoint was saved.
    """
    objects = Objects(reward, environment, tools, agent)
    return _start("grpo", overrides, objects, data, evaluation_data, directory, callbacks)


def sft(
    *overrides: str,
    reward: Any = None,
    data: Any = None,
    evaluation_data: Any = None,
    directory: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train on target texts, as `agent-tunix sft` does, and return the run.

    The arguments and errors are those of `train`. The reward only scores evaluations.
    """
    return _start("sft", overrides, Objects(reward), data, evaluation_data, directory, callbacks)


def prefer(
    *overrides: str,
    reward: Any = None,
    data: Any = None,
    evaluation_data: Any = None,
    directory: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train on pairs of responses, as `agent-tunix prefer` does, and return the run.

    The arguments and errors are those of `train`. The reward only scores evaluations. `prefer.from_rollouts=RUN` makes
    the pairs from the completions of a run.
    """
    return _start("prefer", overrides, Objects(reward), data, evaluation_data, directory, callbacks)


def _start(
    method: "Method",
    overrides: Sequence[str],
    objects: Objects,
    data: Any,
    evaluation_data: Any,
    directory: str | Path | None,
    callbacks: Sequence[Callback],
) -> Run:
    from agent_tunix.config import compose

    check_arguments(overrides, callbacks)
    prepare()
    config, root = compose.compose_run(overrides)
    if directory is not None:
        if any(override.startswith("hydra.run.dir=") for override in overrides):
            raise ConfigError("give the directory of a run once: directory=DIR or hydra.run.dir=DIR, not both")
        root = Path(directory).expanduser().absolute()
    config = objects.named_in(config)
    if data is not None or evaluation_data is not None:
        evaluates = any(override.startswith("evaluation.num_samples=") for override in overrides)
        config = _with_data(config, root, data, evaluation_data, evaluates=evaluates)
    run_here(config, root, overrides, method, callbacks)
    return Run(root)


def _with_data(config: "Config", root: Path, data: Any, evaluation_data: Any, *, evaluates: bool) -> "Config":
    """Return the configuration with these rows; those in memory are written to `data/` of the run's directory."""
    from agent_tunix.runs import directory as run_directory

    run_directory.claim(config, root)  # before anything is written there
    splits = dict(data) if isinstance(data, Mapping) else {} if data is None else {"train": data}
    if evaluation_data is not None:
        splits = {name: rows for name, rows in splits.items() if name == config.data.train_split}
        splits["test"] = evaluation_data
    paths = {
        role: _place(rows, root / "data", role) for role, rows in _by_role(splits, config, data is not None).items()
    }
    if "train" in paths:
        config = replace(
            config,
            data=replace(config.data, path=paths["train"], source="auto", mixture={}),
            training=replace(config.training, train_data_dir=None, test_data_dir=None, data_source=None),
        )
    if "test" in paths:
        config = replace(config, training=replace(config.training, test_data_dir=paths["test"]))
    elif not isinstance(data, str | Path) and config.training.train_fraction == 1.0 and not evaluates:
        config = replace(config, evaluation=replace(config.evaluation, num_samples=0))
    return config


def _by_role(splits: Mapping[str, Any], config: "Config", has_data: bool) -> dict[str, Any]:
    """Return the rows of `train` and `test`: splits of the names that the configuration gives, or the only other."""
    names = {"train": config.data.train_split, "test": config.data.test_split}
    by_role = {role: splits.get(name, splits.get(role)) for role, name in names.items()}
    others = [name for name in splits if name not in (*names.values(), *names)]
    if by_role["test"] is None and len(others) == 1:
        by_role["test"] = splits[others[0]]
    if has_data and by_role["train"] is None:
        raise DataError(
            f"data must have the split {names['train']!r}, but has {', '.join(map(repr, splits)) or 'none'}; name the "
            "split with data.train_split=NAME",
            code="missing_data",
        )
    return {role: rows for role, rows in by_role.items() if rows is not None}


def _place(rows: Any, directory: Path, name: str) -> str:
    from agent_tunix.api.rows import write_rows

    return str(rows) if isinstance(rows, str | Path) else str(write_rows(rows, directory, name))
