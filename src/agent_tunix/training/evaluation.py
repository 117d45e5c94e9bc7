"""Accuracy on held-out problems: exact, within 10 %, in the form asked for, and over several samples.

An evaluation measures the same thing whatever reward trains: the built-in `math` and `format` rewards judge.
pass@k is the unbiased estimator of https://arxiv.org/abs/2107.03374, equation 1: with n samples of a problem of which c
are right, 1 - C(n - c, k) / C(n, k), averaged over the problems.
"""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from agent_tunix.config.schema import Config, EvaluationConfig
from agent_tunix.policy import compat
from agent_tunix.rewards import Outcome, Sample, extract_answer, get_builtin
from agent_tunix.training.learner import make_samples
from agent_tunix.training.prompting import Prompts
from agent_tunix.training.rollout import Rollout, Sampling

_LOGGER = logging.getLogger("agent_tunix.evaluation")

# (temperature, top-k, top-p); "greedy" is meant as 1e-4/1/1.0, which is the likeliest token.
INFERENCE_CONFIGS = {"greedy": (1e-4, 1, 1.0), "standard": (0.7, 50, 0.95), "liberal": (0.85, 2000, 1.0)}


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; every share is between 0 and 1, or None where no completion could be judged.

    Attributes:
        accuracy: Share of completions whose answer is exactly right.
        partial_accuracy: Share within 10 % of the reference, exact ones included.
        format_accuracy: Share that follows `prompt.format` exactly.
        pass_at_k: k → share of problems that at least one of k samples solves; for several passes.
        consistency: Mean share of a problem's samples that give its commonest answer; for several passes.
        num_problems: Problems asked.
        num_unscored: Completions without a verdict, because the reference is bad; in no share.
    """

    accuracy: float | None
    partial_accuracy: float | None
    format_accuracy: float | None
    pass_at_k: dict[int, float]
    consistency: float | None
    num_problems: int
    num_unscored: int

    def metrics(self) -> dict[str, float | None]:
        """By the names that every tracker uses; None is what is not known."""
        values: dict[str, float | None] = {
            "eval/accuracy": self.accuracy,
            "eval/partial_accuracy": self.partial_accuracy,
            "eval/format_accuracy": self.format_accuracy,
            "eval/num_problems": self.num_problems,
            "eval/num_unscored": self.num_unscored,
        }
        if self.pass_at_k:
            values["eval/pass_at_k"] = self.pass_at_k[max(self.pass_at_k)]
            values |= {f"eval/pass_at_{k}": share for k, share in self.pass_at_k.items()}
        if self.consistency is not None:
            values["eval/consistency"] = self.consistency
        return values


def evaluation_sampling(evaluation: EvaluationConfig, max_new_tokens: int) -> Sampling:
    """How completions are sampled in an evaluation."""
    temperature, top_k, top_p = INFERENCE_CONFIGS[evaluation.inference_config]
    greedy = evaluation.inference_config == "greedy"
    return Sampling(max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, greedy=greedy)


def choose_rows(config: Config, num_rows: int) -> range:
    """The first rows, as many as `evaluation.num_samples` and `training.num_test_batches` allow."""
    limit = min(config.evaluation.num_samples, num_rows)
    if config.training.num_test_batches is not None:
        limit = min(limit, config.training.num_test_batches * config.evaluation.batch_size)
    return range(limit)


def evaluate(rollout: Rollout, prompts: Prompts, config: Config, mesh: jax.sharding.Mesh) -> Evaluation:
    """Complete the held-out problems and judge the completions.

    Args:
        rollout: Samples from the policy.
        prompts: The held-out problems.
        config: Gives the sampling, the number of problems and of passes.
        mesh: Where the policy lives.
    """
    rows = choose_rows(config, len(prompts.examples))
    size = min(config.evaluation.batch_size, len(rows))
    sampling = evaluation_sampling(config.evaluation, config.generation.max_generation_steps)
    samples: list[list[Sample]] = [[] for _ in rows]
    for number in range(config.evaluation.num_passes):
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        for chunk, start in enumerate(range(0, len(rows), size)):
            wanted = rows[start : start + size]
            # The last batch is filled up, so that one compiled program serves all.
            padded = [*wanted, *[wanted[-1]] * (size - len(wanted))]
            batch = prompts.batch(padded)
            with compat.entered(mesh):
                completions = rollout.sample(
                    batch.token_ids,
                    jax.random.fold_in(key, chunk),
                    sampling,
                    num_generations=1,
                    max_prompt_length=config.generation.max_prompt_length,
                )
            made = make_samples(0, 0, batch, completions, config, num_generations=1)
            for row, sample in zip(wanted, made, strict=False):
                samples[row].append(sample)
    return judge(samples)


def judge(samples: Sequence[Sequence[Sample]]) -> Evaluation:
    """Judge the samples of each problem, with a warning where not one can be judged.

    Args:
        samples: For each problem its samples, the same number for all.
    """
    math_reward, format_reward = get_builtin("math"), get_builtin("format")
    flat = [sample for of_problem in samples for sample in of_problem]
    verdicts = math_reward.score(flat)
    scored = [verdict.outcome is Outcome.SCORED for verdict in verdicts]
    if not any(scored):
        _LOGGER.warning(
            "none of the %d completions of the held-out problems could be judged, so their accuracy is not known;"
            " correct the references of the held-out rows; of the first one: %s",
            len(flat),
            verdicts[0].detail,
        )
    values = np.array([verdict.value or 0.0 for verdict in verdicts])[scored]
    forms = np.array([score.value for score in format_reward.score(flat)], np.float64)[scored]
    passes = len(samples[0])
    right = np.array([verdict.value == 1.0 for verdict in verdicts]).reshape(-1, passes)
    kept = np.array(scored).reshape(-1, passes).all(axis=1)
    several = passes > 1 and bool(kept.any())
    return Evaluation(
        accuracy=_mean(values == 1.0),
        partial_accuracy=_mean(values >= 0.5),
        format_accuracy=_mean(forms == 1.0),
        pass_at_k={k: pass_at_k(right[kept].sum(axis=1), passes, k) for k in _ks(passes)} if several else {},
        consistency=_consistency(samples) if several else None,
        num_problems=len(samples),
        num_unscored=len(flat) - sum(scored),
    )


def pass_at_k(num_right: np.ndarray, num_samples: int, k: int) -> float:
    """The unbiased estimate of the share of problems that at least one of k samples solves.

    Args:
        num_right: For each problem, how many of its samples are right.
        num_samples: n, samples of each problem.
        k: At most n.
    """
    return float(np.mean([1.0 - math.comb(num_samples - int(c), k) / math.comb(num_samples, k) for c in num_right]))


def _ks(passes: int) -> list[int]:
    return sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < passes} | {passes})


def _consistency(samples: Sequence[Sequence[Sample]]) -> float:
    shares = []
    for of_problem in samples:
        answers = Counter(extract_answer(sample.response) for sample in of_problem)
        shares.append(answers.most_common(1)[0][1] / len(of_problem))
    return float(np.mean(shares))


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
