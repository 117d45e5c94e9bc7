"""`evaluate.py`: accuracy of a run's checkpoint, or of a plain model, on held-out problems.

Importing this module does not load JAX.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import DataError, RunDirectoryError
from agent_tunix.evaluation.request import EvaluationRequest, Subject
from agent_tunix.visible_text import escape_hidden

if TYPE_CHECKING:
    from agent_tunix.evaluation.intervals import AccuracyComparison
    from agent_tunix.evaluation.judging import Evaluation


def evaluate_checkpoint(request: EvaluationRequest) -> None:
    """Evaluate a model, print a table, and write the results.

    The results go into `request.output`, or into `evaluation_step_N_CONFIG.json`. The problems with their completions
    go into a `.jsonl` file beside it.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
        DataError: The two models to compare share no problem.
        RunDirectoryError: The results cannot be written.
    """
    import absl.logging

    from agent_tunix.runs.directory import write_json, write_text

    absl.logging.set_verbosity(absl.logging.ERROR)  # Orbax logs each file that it reads
    if request.output is not None:
        _make_directory(request.output.parent)
    config = request.subject.run.config
    step, found = _measure(request.subject, config)
    results: dict[str, Any] = {
        "model": request.subject.name,
        "step": step,
        "inference_config": config.evaluation.inference_config,
        "num_passes": config.evaluation.num_passes,
        **{f"{group}.{key}": value for group, values in request.replaced.items() for key, value in values.items()},
        **found.metrics(),
    }
    rows = list(found.judged.rows())
    if request.mixture is not None:
        from agent_tunix.evaluation.by_reward import score_held_out

        metrics, totals = score_held_out(request.mixture, config, found.judged.samples, step)
        results |= metrics
        for row, of_problem in zip(rows, totals, strict=True):
            for completion, total in zip(row["completions"], of_problem, strict=True):
                completion["reward"] = total
    if request.other is not None:
        other_step, second = _measure(request.other, config)
        results |= {"compared_with": request.other.name, "compared_step": other_step}
        results |= {f"{name.replace('eval/', 'eval/compared/')}": v for name, v in second.metrics().items()}
        results |= _comparison_metrics(_compare(found, second))
    path = request.output or request.root / f"evaluation_step_{step}_{config.evaluation.inference_config}.json"
    write_text(path.with_suffix(".jsonl"), "".join(json.dumps(row, default=str) + "\n" for row in rows))
    write_json(path, results)
    _show(results, path)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"output: {directory} cannot be made: {error}", code="unwritable_directory") from error


def _measure(subject: Subject, asked: Config) -> tuple[int, "Evaluation"]:
    """Evaluate a model, and return the step of its checkpoint and the result.

    Args:
        subject: The model, with the prompt and the lengths that it was trained with.
        asked: The configuration that gives data, seed and evaluation settings.
    """
    from agent_tunix.data import load_evaluation
    from agent_tunix.data.prompting import encode_examples
    from agent_tunix.evaluation.evaluate import evaluate
    from agent_tunix.runs.weights.trained_policy import load_trained_policy
    from agent_tunix.sampling.sampler import Sampler

    training = dataclasses.replace(
        subject.run.config.training,
        test_data_dir=asked.training.test_data_dir,
        train_data_dir=asked.training.train_data_dir,
        train_fraction=asked.training.train_fraction,
        num_test_batches=asked.training.num_test_batches,
    )
    config = dataclasses.replace(
        subject.run.config, data=asked.data, seed=asked.seed, training=training, evaluation=asked.evaluation
    )
    trained = load_trained_policy(subject.run, subject.step)
    prompts = encode_examples(load_evaluation(config).examples, trained.tokenizer, config)
    sampler = Sampler(trained.policy, trained.tokenizer, trained.mesh, config.generation.eos_tokens)
    return trained.step, evaluate(sampler, prompts, config)


def _compare(first: "Evaluation", second: "Evaluation") -> "AccuracyComparison":
    """Compare two evaluations on their common problems.

    A problem counts if both models answered it and all completions were scored. The two may have dropped different
    prompts.

    Raises:
        DataError: There is no common problem.
    """
    from agent_tunix.evaluation.intervals import compare

    places = [_places(found) for found in (first, second)]
    common = [key for key in places[0] if key in places[1]]
    if not common:
        raise DataError(
            "the two models were judged on no problem in common, so there is nothing to compare",
            code="nothing_to_compare",
        )
    rights = [
        (found.judged.values == 1.0)[[place[key] for key in common]]
        for found, place in zip((first, second), places, strict=True)
    ]
    return compare(*rights)


def _places(found: "Evaluation") -> dict[tuple[str, str, int], int]:
    """Return the index of each problem whose completions were all scored.

    The key is the problem, its reference and the number of earlier occurrences of both.
    """
    places: dict[tuple[str, str, int], int] = {}
    asked: Counter[tuple[str, str]] = Counter()
    for place, (samples, scored) in enumerate(zip(found.judged.samples, found.judged.scored, strict=True)):
        problem = samples[0].prompt, str(samples[0].answer)
        if scored.all():
            places[*problem, asked[problem]] = place
        asked[problem] += 1
    return places


def _comparison_metrics(comparison: "AccuracyComparison") -> dict[str, Any]:
    low, high = comparison.interval
    return {
        "eval/difference/accuracy": comparison.difference,
        "eval/difference/accuracy_low": low,
        "eval/difference/accuracy_high": high,
        "eval/difference/only_first": comparison.only_first,
        "eval/difference/only_second": comparison.only_second,
        "eval/difference/p_value": comparison.p_value,
        "eval/difference/num_problems": comparison.num_problems,
    }


def _show(results: Mapping[str, Any], path: Path) -> None:
    """Print one line for each metric, with its interval."""
    width = max(map(len, results))
    for name, value in results.items():
        if name.endswith(("_low", "_high")):
            continue
        shown = "n/a" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        if f"{name}_low" in results:
            shown += f"  [{results[f'{name}_low']:.4f}, {results[f'{name}_high']:.4f}]"
        print(escape_hidden(f"{name:{width}} {shown}"))
    print(escape_hidden(f"{'written':{width}} {path}"))
    print(escape_hidden(f"{'problems':{width}} {path.with_suffix('.jsonl')}"))
