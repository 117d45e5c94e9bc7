"""A forecast of a run: memory of a device, seconds per step, tokens per second and cost; loads no JAX.

A phase takes as long as the slowest of these: computing, reading the device's own memory and sending to other devices,
each at a share of the rate in the device's data sheet, and starting the kernels of sampled tokens on a GPU. Rewards,
compilation, start and checkpoints are not included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_tunix.config.checks import evaluated_rows
from agent_tunix.config.episodes import episode_tokens
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.planning.accelerators import Accelerator
from agent_tunix.planning.memory import USABLE_MEMORY, MemoryPlan, plan_memory
from agent_tunix.planning.work import WorkEstimate, count_weights, work_of_sampling, work_of_step
from agent_tunix.policy.architecture import Architecture

_LARGEST_GROUP = 1 << 14
# Weights of the smallest real models; the tiny ones have less than a million.
_REAL_MODEL_WEIGHTS = 50_000_000
_SHORT_LENGTH = 64


@dataclass(frozen=True)
class Assumptions:
    """Shares, 0 to 1, of the rates in the data sheet that a run reaches."""

    utilisation: float = 0.3  # share of the operations per second
    bandwidth_utilisation: float = 0.6  # share of the bytes per second, of memory and of links


@dataclass(frozen=True)
class Phase:
    """A phase of a step."""

    work: WorkEstimate  # operations and bytes of the phase
    seconds: float | None  # duration; None if the device's speed is not known
    bound: str  # the slowest part: compute, memory, links or launches; "" if not known


@dataclass(frozen=True)
class RunForecast:
    """The forecast of a run on some devices."""

    memory: MemoryPlan
    available: int  # usable bytes of a device
    phases: Mapping[str, Phase]  # phases of a step, by name
    evaluation: Mapping[str, Phase]  # phases of one evaluation, by name
    sampled_tokens: int
    steps: int | None  # steps of the run; None if not known before the data is read
    evaluations: int
    largest_micro_batch: int | None  # the largest divisor of training.batch_size that fits; None if not even 1 does
    # The largest grpo.num_generations that fits with training.micro_batch_size=1; None if none does.
    largest_group: int | None

    @property
    def fits(self) -> bool:
        """True if the run fits into a device as configured."""
        return self.memory.total <= self.available

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step, without rewards; None if not known."""
        return _total(self.phases)

    @property
    def tokens_per_second(self) -> float | None:
        """Sampled tokens per second of the whole step, on all devices; None if not known."""
        return None if self.step_seconds is None else self.sampled_tokens / self.step_seconds

    @property
    def run_seconds(self) -> float | None:
        """Seconds of all steps and evaluations; None if not known."""
        evaluation = _total(self.evaluation)
        if self.steps is None or self.step_seconds is None or evaluation is None:
            return None
        return self.steps * self.step_seconds + self.evaluations * evaluation


def forecast_run(
    architecture: Architecture,
    config: Config,
    device: Accelerator,
    shape: MeshShape,
    compute_bytes: int,
    assumptions: Assumptions | None = None,
    judges: Sequence[Config] = (),
) -> RunForecast:
    """Return the forecast of a run.

    Args:
        architecture: Architecture of the policy.
        config: Configuration of the run. Its `model.mesh_shape` is ignored.
        device: Kind of the devices of the mesh.
        shape: Shape of the mesh.
        compute_bytes: Bytes of a number in the type that the policy computes in: 4 or 2.
        assumptions: Shares of the device's rates that the run reaches.
        judges: The models of judges that the run samples. Their memory is planned, but not their time.
    """
    assumptions = assumptions or Assumptions()
    available = round(USABLE_MEMORY * device.memory_bytes)

    def fits(batch: int, micro_batch: int, group: int) -> bool:
        candidate = replace(
            config,
            training=replace(
                config.training,
                batch_size=batch,
                micro_batch_size=micro_batch,
                gradient_accumulation_steps=None,
            ),
            grpo=replace(config.grpo, num_generations=group),
        )
        return plan_memory(architecture, candidate, compute_bytes, shape, judges).total <= available

    def timed(works: Mapping[str, WorkEstimate]) -> dict[str, Phase]:
        return {name: _time(work, device, shape, assumptions) for name, work in works.items()}

    batch, group = config.training.batch_size, config.grpo.num_generations
    steps = config.training.num_batches
    every = config.training.eval_every_n_steps
    steps = None if steps is None else steps * config.training.num_epochs
    return RunForecast(
        memory=plan_memory(architecture, config, compute_bytes, shape, judges),
        available=available,
        phases=timed(work_of_step(architecture, config, compute_bytes, shape)),
        evaluation={}
        if config.engine.name != "none"
        else timed(
            work_of_sampling(
                architecture,
                config,
                compute_bytes,
                shape,
                prompts=evaluated_rows(config) * config.evaluation.num_passes,
                group=1,
                batches=-(-evaluated_rows(config) // config.evaluation.batch_size) * config.evaluation.num_passes,
            )
        ),
        sampled_tokens=batch * group * episode_tokens(config),
        steps=steps,
        # One before the first step, one after the last, and those between.
        evaluations=2 + ((steps - 1) // every if steps and every else 0),
        largest_micro_batch=next(
            (size for size in range(batch, 0, -1) if batch % size == 0 and fits(batch, size, group)), None
        ),
        largest_group=_largest(lambda size: fits(batch, 1, size), shape.row_shards),
    )


def _time(work: WorkEstimate, device: Accelerator, shape: MeshShape, assumptions: Assumptions) -> Phase:
    if device.flops is None:
        return Phase(work, None, "")
    share = assumptions.bandwidth_utilisation
    seconds = {"compute": work.flops / (shape.size * device.flops * assumptions.utilisation)}
    if device.bandwidth is not None:
        seconds["memory"] = work.read / (device.bandwidth * share)
    if device.link is not None:
        seconds["links"] = work.sent / (device.link * share)
    if work.layers and device.layer_s:
        seconds["launches"] = work.layers * device.layer_s
    bound = max(seconds, key=lambda name: seconds[name])
    return Phase(work, seconds[bound], bound)


def _total(phases: Mapping[str, Phase]) -> float | None:
    seconds = [phase.seconds for phase in phases.values() if phase.seconds is not None]
    return sum(seconds) if len(seconds) == len(phases) else None


def _largest(fits: Callable[[int], bool], unit: int) -> int | None:
    """Return the largest multiple of `unit`, at least 2, that fits; None if none does.

    The search halves an interval, because a larger size never needs less memory.
    """
    first = max(unit, 2)
    if not fits(first):
        return None
    low, high = first // unit, _LARGEST_GROUP // unit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * unit) else (low, middle - 1)
    return low * unit


def short_lengths(architecture: Architecture, config: Config) -> Iterator[str]:
    """Yield a warning for each length that suits the tiny model, if the model is a real one.

    The defaults do. A plan with them shows memory and time of a run that would cut every answer.
    """
    total, _ = count_weights(architecture)
    if total < _REAL_MODEL_WEIGHTS:
        return
    for name in ("max_prompt_length", "max_generation_steps"):
        length = getattr(config.generation, name)
        if length is not None and length <= _SHORT_LENGTH:
            yield (
                f"generation.{name}={length} suits the tiny model: few texts of a model of {total / 1e9:.2g} billion "
                f"weights fit in {length} tokens, and this plan is for such short ones; set it to the longest of your "
                "task (+experiment=lora_math has 512)"
            )
