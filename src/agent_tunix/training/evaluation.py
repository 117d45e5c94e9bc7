"""Held-out problems through the policy: which ones, how often, and how they are sampled; `judging` has the verdicts."""

import concurrent.futures
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from agent_tunix.config.schema import Config, EvaluationConfig
from agent_tunix.policy import compat
from agent_tunix.rewards import Sample
from agent_tunix.training.ahead import Ahead
from agent_tunix.training.judging import Evaluation, judge
from agent_tunix.training.keys import Use, derive_key
from agent_tunix.training.learner import PromptBatch, make_samples
from agent_tunix.training.prompting import Prompts
from agent_tunix.training.rollout import Rollout
from agent_tunix.training.sampling import Sampling

# What `begin_evaluation` begins, by the name it is waited for.
EVALUATION = "evaluation"
_T = TypeVar("_T")
# For each problem its completions.
Completed = list[list[Sample]]

# (temperature, top-k, top-p); "greedy" is meant as 1e-4/1/1.0, which is the likeliest token.
INFERENCE_CONFIGS = {"greedy": (1e-4, 1, 1.0), "standard": (0.7, 50, 0.95), "liberal": (0.85, 2000, 1.0)}


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


def begin_evaluation(ahead: Ahead, rollout: Rollout, prompts: Prompts, config: Config, mesh: jax.sharding.Mesh) -> None:
    """Begin to complete the held-out problems, for who waits for `EVALUATION` and gives it to `evaluate`.

    Until then the policy's weights must stay what they are. On several devices the program is compiled and no more:
    another one beside it could run on them in another order. With several processes nothing is begun: they would have
    to compile in the same order.
    """
    if jax.process_count() > 1:
        return

    def begin(traced: Callable[[], None]) -> Completed | None:
        rows, size = _divide(config, prompts)
        with compat.entered(mesh):
            call = _ask(rollout.call, prompts.batch(list(rows[:size])), config, _key(config, 0, 0))
            rollout.programs.prepare(call, traced)
        return complete_problems(rollout, prompts, config, mesh, ahead.is_closing) if mesh.size == 1 else None

    ahead.begin_in_turn({EVALUATION: begin})


def evaluate(
    rollout: Rollout, prompts: Prompts, config: Config, mesh: jax.sharding.Mesh, begun: Completed | None = None
) -> Evaluation:
    """Complete the held-out problems and judge the completions.

    Args:
        rollout: Samples from the policy.
        prompts: The held-out problems.
        config: Gives the sampling, the number of problems and of passes.
        mesh: Where the policy lives.
        begun: What `begin_evaluation` came to with the same arguments; None: they are completed now.
    """
    return judge(begun or complete_problems(rollout, prompts, config, mesh))


def complete_problems(
    rollout: Rollout,
    prompts: Prompts,
    config: Config,
    mesh: jax.sharding.Mesh,
    is_given_up: Callable[[], bool] = lambda: False,
) -> Completed:
    """For each held-out problem its completions; those of `evaluate`, which has the arguments.

    Args:
        is_given_up: Asked before each batch.

    Raises:
        CancelledError: It is given up.
    """
    rows, size = _divide(config, prompts)
    batches = [
        _Asked(number, chunk, rows[start : start + size])
        for number in range(config.evaluation.num_passes)
        for chunk, start in enumerate(range(0, len(rows), size))
    ]

    def put(asked: _Asked, act: Callable[..., _T]) -> tuple[PromptBatch, _T]:
        if is_given_up():
            raise concurrent.futures.CancelledError
        # The last batch is filled up, so that one compiled program serves all.
        batch = prompts.batch([*asked.rows, *[asked.rows[-1]] * (size - len(asked.rows))])
        with compat.entered(mesh):
            return batch, _ask(act, batch, config, _key(config, asked.number, asked.chunk))

    samples: list[list[Sample]] = [[] for _ in rows]
    _, call = put(batches[0], rollout.call)
    with concurrent.futures.ThreadPoolExecutor(rollout.programs.num_at_once(call), "evaluate") as pool:
        answered = pool.map(lambda asked: put(asked, rollout.sample), batches)
        for asked, (batch, completions) in zip(batches, answered, strict=True):
            made = make_samples(0, 0, batch, completions, config, num_generations=1)
            for row, sample in zip(asked.rows, made, strict=False):
                # The samples of a problem are a group, for rewards that compare them.
                named = {"group_id": row, "rollout_id": f"0_{row}_{asked.number}", "index": None}
                samples[row].append(dataclasses.replace(sample, **named))  # type: ignore[arg-type]
    return samples


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A batch of an evaluation.

    Attributes:
        number: Of the pass.
        chunk: Of the batch in its pass.
        rows: The problems.
    """

    number: int
    chunk: int
    rows: range


def _divide(config: Config, prompts: Prompts) -> tuple[range, int]:
    """The rows that are asked about, and how many at once."""
    rows = choose_rows(config, len(prompts.examples))
    return rows, min(config.evaluation.batch_size, len(rows))


def _key(config: Config, number: int, chunk: int) -> jax.Array:
    """Of a batch of a pass."""
    return derive_key(config.seed, Use.EVALUATION, number, chunk)


def _ask(act: Callable[..., _T], batch: PromptBatch, config: Config, key: Any) -> _T:
    """Sample a completion of each prompt of a batch, or make the call that does."""
    return act(
        batch.token_ids,
        key,
        evaluation_sampling(config.evaluation, config.generation.max_generation_steps),
        num_generations=1,
        max_prompt_length=config.generation.max_prompt_length,
    )
