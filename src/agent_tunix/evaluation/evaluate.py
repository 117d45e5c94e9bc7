"""Evaluation of a policy on held-out problems. `judging.py` scores the completions."""

import dataclasses
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agent_tunix.config.checks import evaluated_rows
from agent_tunix.config.episodes import prompt_tokens, turn_tokens
from agent_tunix.config.schema import INFERENCE_CONFIGS, Config
from agent_tunix.data.prompting import Prompts
from agent_tunix.errors import ConfigError
from agent_tunix.evaluation.intervals import mean_interval
from agent_tunix.evaluation.judging import is_enough, judge, reason_not_to_judge, warn_if_unknown
from agent_tunix.rewards import Sample, Score
from agent_tunix.rewards.builtin.form import has_tags
from agent_tunix.rewards.sample import ScoringFunction
from agent_tunix.rewards.statistics.episodes import episode_metrics
from agent_tunix.runs.reward_setup import BUILTIN_MEASURES, OWN_REWARD
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import BatchSampler
from agent_tunix.sampling.samples import make_samples
from agent_tunix.sampling.token_choice import SamplingParams

_LOGGER = logging.getLogger("agent_tunix.evaluation")

# Metrics that need references which `evaluation.correct` can use.
_BY_ANSWER = re.compile(r"eval/(accuracy|partial_accuracy|pass_at_\w+|consistency)(_low|_high)?")

# Returns the metrics that a method computes from held-out rows without sampling, such as `eval/prefer/accuracy`.
HeldOutFigures = Callable[[], Mapping[str, float | None]]


def evaluation_sampling(config: Config) -> SamplingParams:
    """Return the sampling parameters of an evaluation."""
    name = config.evaluation.inference_config
    if name == "training":
        return SamplingParams.of_training(config)
    temperature, top_k, top_p = INFERENCE_CONFIGS[name]
    return SamplingParams(
        turn_tokens(config), temperature=temperature, top_k=top_k, top_p=top_p, greedy=name == "greedy"
    )


def choose_rows(config: Config, num_rows: int) -> range:
    """Return the first rows, as many as `evaluation.num_samples` and `training.num_test_batches` allow."""
    return range(min(evaluated_rows(config), num_rows))


class Evaluator:
    """Evaluates the policy of a run during training: by the correctness of answers, by the run's reward, or by both.

    Args:
        reward: Scores samples with the run's reward; None if no reward trains.
        correct: Scores samples with the reward that `evaluation.correct` names; None for a built-in measure and for the
            run's own reward.
        figures: Further figures, which need no completions; None without any. With them, completions are sampled only
            if their answers or rewards can be judged.

    Attributes:
        is_on: False if `evaluation.num_samples` is 0.

    Raises:
        ConfigError: The run stops by a figure that its held-out rows cannot give.
    """

    def __init__(
        self,
        config: Config,
        prompts: Prompts,
        components: Sequence[str],
        reward: ScoringFunction | None,
        correct: ScoringFunction | None,
        max_steps: int,
        figures: HeldOutFigures | None = None,
    ) -> None:
        self._config = config
        self._figures = figures
        self._prompts = prompts
        self._components = components
        self._correct = correct
        self._max_steps = max_steps
        settings = config.evaluation
        self.is_on = settings.num_samples > 0
        by_reward = settings.with_rewards
        self._reason_unknown = self._probe() if self.is_on and settings.correct in BUILTIN_MEASURES else ""
        if by_reward is None:
            by_reward = bool(self._reason_unknown) or settings.correct == OWN_REWARD
        self._reward = reward if by_reward or settings.correct == OWN_REWARD else None
        self._tells_reward = by_reward
        self._samples = figures is None or not self._reason_unknown or self._reward is not None
        if self.is_on:
            self._announce()

    def metrics(self, sampler: BatchSampler, step: int) -> dict[str, float | None]:
        """Return the metrics of the policy after a step; raise RewardError if a reward cannot score the completions."""
        if not self.is_on:
            return {}
        figures = {} if self._figures is None else self._figures()
        return {**(self._judged(sampler, step) if self._samples else {}), **figures}

    def _judged(self, sampler: BatchSampler, step: int) -> dict[str, float | None]:
        """Return the metrics of completions of the held-out problems."""
        samples = complete_problems(sampler, self._prompts, self._config)
        flat = at_step(samples, step, self._max_steps)
        scores = None if self._reward is None else self._reward(flat)
        settings = self._config.evaluation
        verdicts = scores if settings.correct == OWN_REWARD else self._correct and self._correct(flat)
        judged = judge(samples, settings.correct, verdicts, settings.correct_at)
        if not self._reason_unknown:
            warn_if_unknown(judged, settings.correct)
        metrics = judged.metrics()
        if self._tells_reward and scores is not None:
            metrics |= reward_metrics(scores, self._components, len(samples[0]))[0]
        return metrics | episode_results(flat)

    def _probe(self) -> str:
        """Return the reason why the references of the rows to evaluate give no accuracy; "" if they do."""
        examples = self._prompts.examples
        rows = [examples[row].columns for row in choose_rows(self._config, len(examples))]
        return reason_not_to_judge(self._config.evaluation.correct, rows)

    def _announce(self) -> None:
        """Log the figures that will be n/a, and raise ConfigError if the run stops by one of them."""
        metric = self._config.stopping.metric or ""
        if self._samples and not has_tags(self._config.prompt.format):
            _LOGGER.info("evaluation: eval/format_accuracy is n/a, because prompt.format has no tags")
        if not self._reason_unknown:
            return
        if _BY_ANSWER.fullmatch(metric):
            raise ConfigError(
                f"stopping.metric={metric} requires references that evaluation.correct can use, but"
                f" {self._reason_unknown}; set stopping.metric=eval/rewards/total/mean, or another evaluation.correct",
                code="unknown_metric",
            )
        if not self._samples:
            _LOGGER.info("evaluation: no completions are sampled, because %s", self._reason_unknown)
            return
        _LOGGER.warning(
            "evaluation: eval/accuracy is n/a, because %s; set evaluation.correct to a reward that can use them%s",
            self._reason_unknown,
            "" if self._reward is None else "; the run's reward is measured too, as eval/rewards/total/mean",
        )


def episode_results(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Return the metrics of the episodes of an evaluation, except times; none for completions of one turn."""
    metrics = episode_metrics(samples).items()
    return {f"eval/{name}": value for name, value in metrics if not name.startswith(("time/", "throughput/"))}


def at_step(samples: Sequence[Sequence[Sample]], step: int, max_steps: int = 0) -> list[Sample]:
    """Return the samples of all problems, as those of a step of the run.

    Args:
        samples: [P][N] samples.
        step: Step of the policy. Component weights that follow a schedule take their value at this step.
        max_steps: Number of steps of the run; 0 if it is not known.
    """
    return [dataclasses.replace(one, step=step, max_steps=max_steps) for of_problem in samples for one in of_problem]


def complete_problems(sampler: BatchSampler, prompts: Prompts, config: Config) -> list[list[Sample]]:
    """Return the completions of each held-out problem.

    Args:
        sampler: Samples from the policy.
        prompts: The held-out problems.
        config: The run's, for the sampling, the number of problems and the number of passes.
    """
    rows = choose_rows(config, len(prompts.examples))
    size = min(config.evaluation.batch_size, len(rows))
    params = evaluation_sampling(config)
    samples: list[list[Sample]] = [[] for _ in rows]
    for number in range(config.evaluation.num_passes):
        for chunk, start in enumerate(range(0, len(rows), size)):
            chunk_rows = rows[start : start + size]
            # The last batch is padded with its last row, so that one compiled program serves all batches.
            batch = prompts.batch([*chunk_rows, *[chunk_rows[-1]] * (size - len(chunk_rows))])
            completions = sampler.sample_batch(
                batch,
                derive_key(config.seed, Use.EVALUATION, number, chunk),
                params,
                num_generations=1,
                max_prompt_length=prompt_tokens(config),
            )
            chunk_samples = make_samples(batch, completions, format=config.prompt.format, num_generations=1)
            for row, sample in zip(chunk_rows, chunk_samples, strict=False):
                # The samples of a problem form a group, because some rewards compare them.
                samples[row].append(
                    dataclasses.replace(sample, group_id=row, rollout_id=f"0_{row}_{number}", index=None)
                )
    return samples


def reward_metrics(
    scores: Sequence[Score], components: Sequence[str], passes: int
) -> tuple[dict[str, float | None], list[list[float | None]]]:
    """Return the metrics and totals of completions that the run's own reward scored.

    Args:
        scores: [P * N] scores of the N completions of each of P problems.
        components: Names of the components of the reward.
        passes: Number N of completions of a problem.

    Returns:
        Metrics: `eval/rewards/total/mean` with its 95 % interval over the problems, `eval/rewards/<component>/mean` of
        the raw values, and `eval/rewards/num_unscored`. The mean total is None if fewer than half of the completions
        were scored, that of a component if none was. And the totals, [P][N], None for unscored completions.
    """
    totals = [one.value for one in scores]
    is_known = is_enough(sum(total is not None for total in totals), len(totals))
    metrics: dict[str, float | None] = {
        "eval/rewards/total/mean": _mean(totals) if is_known else None,
        "eval/rewards/num_unscored": sum(total is None for total in totals),
    }
    rows = [totals[start : start + passes] for start in range(0, len(totals), passes)]
    means = np.array([mean for row in rows if (mean := _mean(row)) is not None])
    if is_known:
        counts = np.array([sum(value is not None for value in row) for row in rows])
        low, high = mean_interval(means, counts[counts > 0])
        metrics |= {"eval/rewards/total/mean_low": low, "eval/rewards/total/mean_high": high}
    for name in components:
        metrics[f"eval/rewards/{name}/mean"] = _mean([one.components.get(name) for one in scores])
    return metrics, rows


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None
