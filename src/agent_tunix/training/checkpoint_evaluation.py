"""`evaluate.py`: accuracy of a run's checkpoint. Importing it loads no JAX."""

import dataclasses
from dataclasses import dataclass

from agent_tunix.config.checks import check
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ConfigError
from agent_tunix.training.trained_policy import FoundRun, Step, check_step, find_run, load_trained_policy


@dataclass(frozen=True)
class Request:
    """What is to be measured.

    Attributes:
        run: The run, its configuration with the evaluation asked for.
        step: Which checkpoint; None for the latest whole one, 0 for the model before training, `best` for the best.
    """

    run: FoundRun
    step: Step


def read_request(asked: EvaluateConfig) -> Request:
    """Find the run and check what can be checked without JAX.

    Raises:
        ConfigError: `checkpoint_dir` is no run, or a value is out of range.
    """
    step = check_step(asked.step)
    if asked.checkpoint_dir is None:
        raise ConfigError("checkpoint_dir is required: the directory of a run, e.g. checkpoint_dir=outputs/…")
    run = find_run(asked.checkpoint_dir)
    evaluation = dataclasses.replace(
        run.config.evaluation,
        inference_config=asked.inference_config,
        num_passes=asked.num_passes,
        num_samples=run.config.evaluation.num_samples if asked.num_samples is None else asked.num_samples,
    )
    config = dataclasses.replace(run.config, evaluation=evaluation)
    check(config)
    return Request(dataclasses.replace(run, config=config), step)


def evaluate_checkpoint(request: Request) -> None:
    """Measure, print a table, and write `evaluation_step_N.json` into the run's directory.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    from agent_tunix.data import load_evaluation
    from agent_tunix.training.building import make_rollout
    from agent_tunix.training.evaluation import evaluate
    from agent_tunix.training.prompting import encode_examples
    from agent_tunix.training.run_directory import write_json

    config = request.run.config
    trained = load_trained_policy(request.run, request.step)
    prompts = encode_examples(load_evaluation(config).examples, trained.tokenizer, config)
    rollout = make_rollout(config, trained.policy, trained.tokenizer, trained.mesh)
    found = evaluate(rollout, prompts, config, trained.mesh)
    metrics = {"step": trained.step, "inference_config": config.evaluation.inference_config, **found.metrics()}
    path = request.run.root / f"evaluation_step_{trained.step}_{config.evaluation.inference_config}.json"
    write_json(path, metrics)
    for name, value in metrics.items():
        shown = "n/a" if value is None else f"{value:.4f}" if isinstance(value, float) else value
        print(f"{name:24} {shown}")
    print(f"{'written':24} {path}")
