"""`evaluate.py`: accuracy of a run's checkpoint, or of a plain model, on held-out problems.

Importing this module does not load JAX.
"""

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import DataError, RunDirectoryError
from agent_tunix.evaluation.request import EvaluationRequest, Subject, read_request
from agent_tunix.rewards import Mixture
from agent_tunix.runs.reward_setup import OWN_REWARD, make_reward_runner
from agent_tunix.visible_text import escape_hidden

# Metrics that are null if too few completions are scored.
_SHARE = re.compile(r"eval/(?:(?:partial_|format_)?accuracy|pass_at_\w+|consistency|rewards/total/mean)")

if TYPE_CHECKING:
    from agent_tunix.evaluation.intervals import AccuracyComparison
    from agent_tunix.evaluation.judging import Evaluation
    from agent_tunix.runs.weights.trained_policy import TrainedPolicy


@dataclasses.dataclass(frozen=True)
class EvaluationResults:
    """The results of an evaluation."""

    metrics: Mapping[str, Any]  # what was evaluated and its metrics, as in the file
    path: Path  # the file; a `.jsonl` file beside it has the problems and their completions
    reasons: Mapping[str, str]  # for each metric that is null, the reason

    def show(self) -> None:
        """Print one line for each metric, with its interval or the reason why it is unknown."""
        _show(self.metrics, self.path, self.reasons)


def run_evaluation(asked: EvaluateConfig) -> EvaluationResults:
    """Check a request, load JAX, evaluate a model, and write the results.

    Raises:
        AgentTunixError: `read_request` refuses the request, or `evaluate_checkpoint` fails.
    """
    from agent_tunix.startup import devices

    request = read_request(asked)
    devices.prepare(request.subject.run.config.distributed)
    devices.require(request.subject.run.config.distributed)
    with devices.explained_memory():
        return evaluate_checkpoint(request)


def evaluate_checkpoint(request: EvaluationRequest) -> EvaluationResults:
    """Evaluate a model, and write the results.

    The results go into `request.output`, or into `evaluation_step_N_CONFIG.json`. The problems with their completions
    go into a `.jsonl` file beside it, and what evaluation harnesses write into a directory `…_harness`.

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
    with contextlib.ExitStack() as stack:
        reward, correct = (
            None if mixture is None else stack.enter_context(make_reward_runner(mixture, config.rewards)).reward
            for mixture in (request.mixture, request.correct)
        )
        if config.evaluation.correct == OWN_REWARD:
            correct = reward
        trained, evaluation = _measure(request.subject, config, correct)
        step = trained.step
        results, rows = _results(request, trained, evaluation, reward)
        reasons = _reasons(results, config, "eval/")
        if request.other is not None:
            other, second = _measure(request.other, config, correct)
            results |= {"compared_with": request.other.name, "compared_step": other.step}
            metrics_of_other = second.metrics()
            reasons |= _reasons(metrics_of_other, request.other.run.config, "eval/compared/")
            results |= {name.replace("eval/", "eval/compared/"): value for name, value in metrics_of_other.items()}
            comparison = _comparison_metrics(*_compare(evaluation, second))
            if comparison["eval/difference/accuracy"] is None:
                count = comparison["eval/difference/num_problems"]
                reasons["eval/difference/accuracy"] = f"problems with scores of both models: {count}"
            results |= comparison
    path = request.output or request.root / f"evaluation_step_{step}_{config.evaluation.inference_config}.json"
    if config.evaluation.harness:
        results |= _harness_metrics(config, trained, path.with_name(f"{path.stem}_harness"))
    write_text(path.with_suffix(".jsonl"), "".join(json.dumps(row, default=str) + "\n" for row in rows))
    write_json(path, results)
    return EvaluationResults(results, path, reasons)


def _reasons(metrics: Mapping[str, Any], config: Config, prefix: str) -> dict[str, str]:
    """Return name → reason of the shares that are null; the names get a prefix instead of `eval/`."""
    from agent_tunix.tracking.summary import reason_unknown

    names = [name for name in metrics if _SHARE.fullmatch(name) and metrics[name] is None]
    return {prefix + name.removeprefix("eval/"): reason_unknown(name, metrics, config.prompt.format) for name in names}


def _results(
    request: EvaluationRequest, trained: "TrainedPolicy", evaluation: "Evaluation", reward: Mixture | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the metrics of the evaluated model, and its problems with their completions."""
    from agent_tunix.evaluation.evaluate import at_step, episode_results, reward_metrics

    config, judged = request.subject.run.config, evaluation.judged
    results: dict[str, Any] = {
        "model": request.subject.name,
        "step": trained.step,
        "inference_config": config.evaluation.inference_config,
        "num_passes": config.evaluation.num_passes,
        "correct": config.evaluation.correct,
        **{f"{group}.{key}": value for group, values in request.replaced.items() for key, value in values.items()},
        **evaluation.metrics(),
        **episode_results([sample for of_problem in judged.samples for sample in of_problem]),
    }
    rows = list(judged.rows())
    if reward is not None:
        if config.evaluation.correct == OWN_REWARD:
            scores = [score for of_problem in judged.verdicts for score in of_problem]
        else:
            scores = reward.score(at_step(judged.samples, trained.step, trained.max_steps))
        metrics, totals = reward_metrics(scores, [one.name for one in reward.components], len(judged.samples[0]))
        results |= metrics
        for row, of_problem in zip(rows, totals, strict=True):
            for completion, total in zip(row["completions"], of_problem, strict=True):
                completion["reward"] = total
    return results, rows


def _harness_metrics(config: Config, trained: "TrainedPolicy", place: Path) -> dict[str, float | None]:
    """Return the metrics of the tasks of `evaluation.harness`, which write into a directory."""
    from agent_tunix.evaluation.harness import HarnessEvaluator
    from agent_tunix.sampling.sampler import Sampler

    sampler = Sampler(trained.policy, trained.tokenizer, trained.mesh, config.generation.eos_tokens)
    return HarnessEvaluator(config, sampler, trained.directory, trains=False).metrics(place, required=True)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"output: {directory} cannot be created: {error}", code="unwritable_directory"
        ) from error


def _measure(subject: Subject, settings: Config, correct: Mixture | None) -> tuple["TrainedPolicy", "Evaluation"]:
    """Evaluate a model, and return it with the result.

    Args:
        subject: The model, with the prompt and the lengths that it was trained with.
        settings: The configuration that gives data, seed and evaluation settings.
        correct: The reward that decides what is correct; None for a built-in measure.
    """
    from agent_tunix.data import load_evaluation
    from agent_tunix.data.prompt_lengths import prompt_limit, with_prompt_length
    from agent_tunix.data.prompting import encode_examples
    from agent_tunix.evaluation.evaluate import at_step, complete_problems
    from agent_tunix.evaluation.judging import judge, warn_if_unknown
    from agent_tunix.policy.files.config_file import read_context_length
    from agent_tunix.runs.environment_setup import episode_overhead, open_environments
    from agent_tunix.runs.weights.trained_policy import load_trained_policy
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.serving.episode_samplers import make_episode_sampler

    training = dataclasses.replace(
        subject.run.config.training,
        test_data_dir=settings.training.test_data_dir,
        train_data_dir=settings.training.train_data_dir,
        train_fraction=settings.training.train_fraction,
        num_test_batches=settings.training.num_test_batches,
    )
    config = dataclasses.replace(
        subject.run.config, data=settings.data, seed=settings.seed, training=training, evaluation=settings.evaluation
    )
    trained = load_trained_policy(subject.run, subject.step)
    generation = config.generation
    sampler = Sampler(trained.policy, trained.tokenizer, trained.mesh, generation.eos_tokens, generation.stop_strings)
    run = subject.run.root if subject.is_run else None
    with open_environments(config, subject.working_directory, run) as environments:
        overhead = episode_overhead(config, trained.tokenizer, environments)
        context = read_context_length(trained.directory)
        examples = load_evaluation(config).examples
        prompts = encode_examples(examples, trained.tokenizer, config, context=context, overhead=overhead)
        config = with_prompt_length(config, prompts.measured, prompt_limit(config, context), overhead)
        episodes = make_episode_sampler(config, sampler, environments, trained.tokenizer)
        samples = complete_problems(episodes or sampler, prompts, config)
    verdicts = None if correct is None else correct.score(at_step(samples, trained.step, trained.max_steps))
    judged = judge(samples, settings.evaluation.correct, verdicts, settings.evaluation.correct_at)
    warn_if_unknown(judged, settings.evaluation.correct)
    return trained, judged


def _compare(first: "Evaluation", second: "Evaluation") -> tuple["AccuracyComparison", bool]:
    """Compare two evaluations on their common problems, and return True if these are enough of all problems.

    A problem counts if both models answered it and all completions were scored. The two may have dropped different
    prompts.

    Raises:
        DataError: There is no common problem.
    """
    from agent_tunix.evaluation.intervals import compare
    from agent_tunix.evaluation.judging import is_enough

    places = [_places(evaluation) for evaluation in (first, second)]
    common = [key for key in places[0] if key in places[1]]
    if not common:
        raise DataError(
            "a comparison requires problems that both models were scored on, but there are none; increase "
            "num_samples, or choose evaluation.correct so that it can use the references",
            code="invalid_request",
        )
    rights = [
        evaluation.judged.right[[place[key] for key in common]]
        for evaluation, place in zip((first, second), places, strict=True)
    ]
    num_asked = min(first.num_problems, second.num_problems)
    return compare(*rights), is_enough(len(common), num_asked)


def _places(evaluation: "Evaluation") -> dict[tuple[str, str, int], int]:
    """Return the index of each problem whose completions were all scored.

    The key is the problem, its reference and the number of earlier occurrences of both.
    """
    places: dict[tuple[str, str, int], int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for place, (samples, is_scored) in enumerate(zip(evaluation.judged.samples, evaluation.judged.scored, strict=True)):
        problem = samples[0].prompt, str(samples[0].answer)
        if is_scored.all():
            places[*problem, counts[problem]] = place
        counts[problem] += 1
    return places


def _comparison_metrics(comparison: "AccuracyComparison", is_known: bool) -> dict[str, Any]:
    """Return the metrics of a comparison, null if it is about too few of the problems."""
    low, high = comparison.interval
    metrics = {
        "eval/difference/accuracy": comparison.difference,
        "eval/difference/accuracy_low": low,
        "eval/difference/accuracy_high": high,
        "eval/difference/only_first": comparison.only_first,
        "eval/difference/only_second": comparison.only_second,
        "eval/difference/p_value": comparison.p_value,
    }
    if not is_known:
        metrics = {"eval/difference/accuracy": None}
    return {**metrics, "eval/difference/num_problems": comparison.num_problems}


def _show(results: Mapping[str, Any], path: Path, reasons: Mapping[str, str]) -> None:
    """Print one line for each metric, with its interval or the reason why it is unknown."""
    width = max(map(len, results))
    for name, value in results.items():
        if name.endswith(("_low", "_high")):
            continue
        text = "n/a" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        if name in reasons:
            text += f"  ({reasons[name]})"
        if f"{name}_low" in results:
            text += f"  [{results[f'{name}_low']:.4f}, {results[f'{name}_high']:.4f}]"
        print(escape_hidden(f"{name:{width}} {text}"))
    print(escape_hidden(f"{'written':{width}} {path}"))
    print(escape_hidden(f"{'problems':{width}} {path.with_suffix('.jsonl')}"))
