"""`evaluate.py`: accuracy of a run's checkpoint. Importing it loads no JAX."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent_tunix.config.checks import check
from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class Request:
    """What is to be measured.

    Attributes:
        root: The run's directory.
        config: The run's configuration, with the evaluation asked for.
        checkpoints: Where the run's checkpoints lie.
        step: Which one; None for the latest whole one, 0 for the model before training, `best` for the best.
    """

    root: Path
    config: Config
    checkpoints: Path
    step: int | Literal["best"] | None


def read_request(asked: EvaluateConfig) -> Request:
    """Find the run and check what can be checked without JAX.

    Raises:
        ConfigError: `checkpoint_dir` is no run, or a value is out of range.
    """
    step = asked.step
    if step not in (None, "best") and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
        raise ConfigError(f"step must be the step of a checkpoint, 0, best or null, not {step!r}")
    if asked.checkpoint_dir is None:
        raise ConfigError("checkpoint_dir is required: the directory of a run, e.g. checkpoint_dir=outputs/…")
    given = Path(asked.checkpoint_dir).absolute()
    root = given if (given / "config.yaml").is_file() else given.parent
    if not (root / "config.yaml").is_file():
        raise ConfigError(f"checkpoint_dir={given} should be the directory of a run, but it has no config.yaml")
    config = from_yaml(root / "config.yaml")
    evaluation = dataclasses.replace(
        config.evaluation,
        inference_config=asked.inference_config,
        num_passes=asked.num_passes,
        num_samples=config.evaluation.num_samples if asked.num_samples is None else asked.num_samples,
    )
    config = dataclasses.replace(config, evaluation=evaluation)
    check(config)
    checkpoints = config.training.checkpoint_dir
    return Request(root, config, Path(checkpoints) if checkpoints else root / "checkpoints", step)


def evaluate_checkpoint(request: Request) -> None:
    """Measure, print a table, and write `evaluation_step_N.json` into the run's directory.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    from agent_tunix.data import load_evaluation
    from agent_tunix.policy.directory import find_model_directory
    from agent_tunix.policy.model import load_policy, make_mesh
    from agent_tunix.policy.tokenizer import Tokenizer
    from agent_tunix.training.building import make_rollout
    from agent_tunix.training.checkpoints import Checkpoints
    from agent_tunix.training.evaluation import evaluate
    from agent_tunix.training.prompting import encode_examples
    from agent_tunix.training.run_directory import write_json
    from agent_tunix.training.state import read_weights, write_weights

    config = request.config
    directory = find_model_directory(config.model)
    tokenizer = Tokenizer(directory)
    mesh = make_mesh(config.model.mesh_shape)
    policy = load_policy(directory, config.model, mesh)
    step = request.step
    if step != 0:
        checkpoints = Checkpoints(request.checkpoints, config.training.max_checkpoints_to_keep)
        if step == "best" and (step := checkpoints.best_step()) is None:
            raise CheckpointError(
                f"{request.checkpoints} has no best checkpoint; train with stopping.metric=eval/accuracy, or"
                f" give a step: there are {checkpoints.steps()}"
            )
        like = {"weights": read_weights(policy)}
        restored = checkpoints.restore_latest(like) if step is None else checkpoints.restore(step, like)
        if restored is None:
            raise CheckpointError(f"{request.checkpoints} has no checkpoint; step=0 measures the model before training")
        write_weights(policy, restored.state["weights"])
        step = restored.step
    prompts = encode_examples(load_evaluation(config).examples, tokenizer, config)
    found = evaluate(make_rollout(config, policy, tokenizer, mesh), prompts, config, mesh)
    metrics = {"step": step, "inference_config": config.evaluation.inference_config, **found.metrics()}
    path = request.root / f"evaluation_step_{step}_{config.evaluation.inference_config}.json"
    write_json(path, metrics)
    for name, value in metrics.items():
        shown = "n/a" if value is None else f"{value:.4f}" if isinstance(value, float) else value
        print(f"{name:24} {shown}")
    print(f"{'written':24} {path}")
