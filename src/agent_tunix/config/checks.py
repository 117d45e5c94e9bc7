"""Checks that need more than the type of one key: choices, ranges, and keys that must agree.

Every message names the key, what was required, what arrived, and what to do.
"""

import dataclasses
import datetime
import difflib
import math
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agent_tunix.config.data_sets import data_problems, data_sets, mixture_problems
from agent_tunix.config.episodes import environment_problems, episode_tokens, has_environment
from agent_tunix.config.mesh_shape import MeshShape, read_mesh_shape
from agent_tunix.config.optimizers import DECAY_SHAPES, OPTIMIZERS, SCHEDULES, optimizer_problems
from agent_tunix.config.other_names import key_of_other_name, reason_without_key
from agent_tunix.config.schema import Config, DistributedConfig, GrpoConfig
from agent_tunix.errors import ConfigError
from agent_tunix.own_functions import POLICY_LOSSES

# Conventions of rewards, by the names that `rewards.conventions` gives them.
REWARD_CONVENTIONS = (
    "plain",
    "trl",
    "miles",
    "environment",
    "verl",
    "openrlhf",
    "ms_swift",
    "verifiers",
    "benchmax",
)

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "model.dtype": ("auto", "float32", "bfloat16"),
    "rewards.on_failure": ("exclude", "zero", "raise"),
    "rewards.execution": ("auto", "inline", "process", "ray"),
    "rewards.convention": ("auto", *REWARD_CONVENTIONS),
    "rewards.completions": ("auto", "text", "messages"),
    "rewards.on_change": ("warn", "refuse"),
    "prompt.without_system_role": ("fold", "refuse"),
    "grpo.loss": POLICY_LOSSES,
    "grpo.advantage_scaling": ("group", "batch", "batch_centred", "mean", "none", "leave_one_out", "component"),
    "optimizer.kind": tuple(OPTIMIZERS),
    "scheduler.kind": tuple(SCHEDULES),
    "scheduler.decay_shape": (None, *DECAY_SHAPES),
    "grpo.kl_estimator": ("low_var_kl", "mse_kl", "unbiased_kl"),
    "grpo.loss_agg_mode": (
        "sequence-mean-token-mean",
        "token-mean",
        "prompt-mean-token-mean",
        "sequence-mean-token-sum",
        "sequence-mean-token-sum-norm",
    ),
    "grpo.sampler_correction": ("none", "token", "sequence"),
    "generation.over_long": ("drop", "refuse"),
    "environment.call_format": ("auto", "hermes", "qwen_xml", "llama3", "gemma", "olmo3"),
    "environment.execution": ("auto", "inline", "process"),
    "environment.on_tool_error": ("tell", "fail"),
    "environment.schedule": ("lockstep", "arrival"),
    "training.log_level": ("debug", "info", "warning", "error"),
    "evaluation.inference_config": ("greedy", "standard", "liberal"),
    "distributed.mode": ("none", "auto", "slurm", "mpi", "manual"),
    "distributed.platform": ("auto", "cpu", "gpu", "tpu"),
    "tracking.progress": ("auto", "live", "plain", "none"),
    "stopping.mode": ("max", "min"),
    "data.sampling": ("uniform", "pass_rate"),
}

# Keys that also take a user's own function: a path, or a name that a module of `grpo.modules` registers.
_OPEN_CHOICES = ("grpo.loss", "grpo.advantage_scaling")

# Optional clips that a loss ignores.
_UNREAD_CLIPS = {
    "reinforce": ("epsilon_high", "epsilon_c"),
    "sapo": ("epsilon_high", "epsilon_c"),
    "cispo": ("epsilon_c",),
    "gmpo": ("epsilon_c",),
}

QUANTIZATIONS = ("int8", "nf4")

_AT_LEAST = {
    "grpo.num_generations": 2,
    "grpo.num_iterations": 1,
    "grpo.reference_sync_steps": 0,
    "grpo.teacher_top_k": 1,
    "grpo.dynamic_sampling_rounds": 0,
    "optimizer.warmup_steps": 0,
    "generation.max_prompt_length": 1,
    "generation.max_generation_steps": 1,
    "generation.top_k": 1,
    "environment.max_turns": 1,
    "environment.max_turn_tokens": 1,
    "environment.max_episode_tokens": 1,
    "environment.max_result_tokens": 1,
    "environment.memory_mb": 1,
    "environment.num_workers": 1,
    "training.batch_size": 1,
    "training.micro_batch_size": 1,
    "training.gradient_accumulation_steps": 1,
    "training.num_batches": 1,
    "training.num_epochs": 1,
    "training.num_test_batches": 1,
    "training.eval_every_n_steps": 0,
    "training.save_interval_steps": 0,
    "training.max_checkpoints_to_keep": 1,
    "training.flush_every_n_steps": 1,
    "sft.max_target_length": 2,
    "evaluation.num_samples": 0,
    "evaluation.batch_size": 1,
    "evaluation.num_passes": 1,
    "rewards.memory_mb": 1,
    "rewards.num_workers": 1,
    "rewards.max_concurrency": 1,
    "rewards.recycle_after": 1,
    "prompt.num_few_shot": 0,
    "data.num_train": 1,
    "data.num_test": 1,
    "data.max_row_bytes": 1,
    "data.shuffle_buffer": 1,
    "model.lora_rank": 0,
    "distributed.num_processes": 1,
    "distributed.process_id": 0,
    "distributed.initialization_timeout_s": 1,
    "distributed.heartbeat_timeout_s": 1,
    "tracking.histogram_bins": 1,
    "stopping.patience": 1,
    "tracking.sample_every_n_steps": 0,
    "tracking.num_samples": 0,
}

_SECONDS_OF_A_DAY = 86_400.0

# key: (lowest, highest, True if lowest is allowed, True if highest is allowed)
_WITHIN = {
    "optimizer.learning_rate": (0.0, math.inf, True, False),
    "optimizer.beta1": (0.0, 1.0, True, False),
    "optimizer.beta2": (0.0, 1.0, True, False),
    "optimizer.epsilon": (0.0, math.inf, True, False),
    "optimizer.momentum": (0.0, 1.0, True, False),
    "optimizer.decay_rate": (0.0, math.inf, False, False),
    "optimizer.warmup_ratio": (0.0, 1.0, True, True),
    "optimizer.weight_decay": (0.0, math.inf, True, False),
    "optimizer.max_grad_norm": (0.0, math.inf, True, False),
    "scheduler.final_ratio": (0.0, 1.0, True, True),
    "scheduler.decay_ratio": (0.0, 1.0, True, True),
    "generation.temperature": (0.0, math.inf, False, False),
    "generation.top_p": (0.0, 1.0, False, True),
    "generation.min_p": (0.0, 1.0, True, False),
    "grpo.beta": (0.0, math.inf, True, False),
    "grpo.epsilon": (0.0, 1.0, False, False),
    "grpo.epsilon_high": (0.0, math.inf, False, False),
    "grpo.tau_positive": (0.0, math.inf, False, False),
    "grpo.tau_negative": (0.0, math.inf, False, False),
    "grpo.entropy_coefficient": (0.0, math.inf, True, False),
    "grpo.entropy_target": (0.0, math.inf, False, False),
    "grpo.top_entropy_share": (0.0, 1.0, False, True),
    "grpo.off_policy_threshold": (0.0, math.inf, True, False),
    "grpo.positive_nll": (0.0, math.inf, True, False),
    "grpo.sampler_correction_cap": (0.0, math.inf, False, False),
    "grpo.epsilon_c": (0.0, math.inf, False, False),
    "grpo.teacher_coefficient": (0.0, math.inf, False, False),
    "grpo.reference_sync_mix": (0.0, 1.0, False, True),
    "training.train_fraction": (0.0, 1.0, False, True),
    "rewards.max_failure_rate": (0.0, 1.0, True, True),
    "rewards.timeout_s": (0.0, _SECONDS_OF_A_DAY, False, True),
    "environment.timeout_s": (0.0, _SECONDS_OF_A_DAY, False, True),
    "rewards.start_timeout_s": (0.0, _SECONDS_OF_A_DAY, False, True),
    # XLA starts threads for each virtual device.
    "distributed.num_cpu_devices": (1, 512, True, True),
    "evaluation.correct_at": (-math.inf, math.inf, False, False),
    "model.lora_alpha": (0.0, math.inf, False, False),
    "stopping.min_delta": (0.0, math.inf, True, False),
    "rollouts.share": (0.0, 1.0, True, True),
    "rollouts.max_file_mb": (0.0, math.inf, False, False),
    # JAX's keys use 32 bits; larger seeds would silently repeat smaller ones.
    "seed": (0, 2**32 - 1, True, True),
}

# Advice for keys whose range alone does not say what to do.
_ADVICE = {
    "rewards.num_workers": "null starts one per core",
    "rewards.timeout_s": "a call without a limit could stall the run; rewards.execution=inline sets no limit",
    "grpo.kl_estimator": "the expected gradient of k1 as a loss is zero",
    "grpo.num_generations": "an advantage compares the completions of one prompt",
    "generation.top_k": "null keeps every token",
    "generation.temperature": "0.01 is nearly greedy",
    "generation.top_p": "1 keeps every token",
    "generation.min_p": "0 keeps every token",
    "training.num_batches": "null goes through all rows",
    "training.max_checkpoints_to_keep": "resuming requires one",
    "training.train_fraction": "1 trains on every row",
    "model.lora_rank": "0 trains all weights",
}


def check(config: Config) -> None:
    """Raise ConfigError, with a line for each problem, if a configuration cannot run; nothing costly is loaded."""
    problems = list(_problems(config))
    if problems:
        raise ConfigError("\n".join(problems), code="invalid_setting")


def suggest(name: str, known: tuple[str, ...] | list[str]) -> str:
    """Return `; did you mean X?` for the nearest known name, or ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def suggest_key(key: str, schema: type) -> str:
    """Return `; did you mean training.batch_size?` for an unknown key of a configuration, or "".

    Names of other libraries come first, then keys with the same last name in other groups, then similar spellings.
    If a name of theirs has no equivalent here, the text gives the reason instead.
    """
    known = [*_keys_of(schema), "hydra.run.dir", "hydra.sweep.dir"]
    if key in known:
        return ""
    if (other := key_of_other_name(key)) is not None and other[0] in known:
        return f"; did you mean {other[0]}?" + (f" ({key.rpartition('.')[2]}: {other[1]})" if other[1] else "")
    leaf = key.rpartition(".")[2]
    if (reason := reason_without_key(key)) is not None:
        return f"; it has no counterpart here: {reason}"
    meant = [name for name in known if name.rpartition(".")[2] == leaf] or difflib.get_close_matches(key, known, n=1)
    if not meant:
        leaves = {name.rpartition(".")[2]: name for name in known}
        meant = [leaves[name] for name in difflib.get_close_matches(leaf, leaves, n=1)]
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def _keys_of(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the groups and dotted keys of a schema."""
    for field in dataclasses.fields(schema):
        yield prefix + field.name
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            yield from _keys_of(field.type, f"{prefix}{field.name}.")


def _value(config: Config, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _problems(config: Config) -> Iterator[str]:
    for key, choices in _CHOICES.items():
        value = _value(config, key)
        is_own = key in _OPEN_CHOICES and ("." in str(value) or bool(config.grpo.modules))
        if value not in choices and not is_own:
            names = tuple(choice for choice in choices if choice is not None)
            hint = _advice(key) or suggest(str(value), names)
            if key in _OPEN_CHOICES:
                hint = f" (or your own: file.py:function, or a name that a file of grpo.modules registers){hint}"
            yield f"{key} must be one of {', '.join(names)}, not {value!r}{hint}"
    yield from _too_low(config, _AT_LEAST)
    for key, (low, high, low_ok, high_ok) in _WITHIN.items():
        value = _value(config, key)
        if value is None:
            continue
        assert isinstance(value, int | float)
        if not ((low < value or (low_ok and value == low)) and (value < high or (high_ok and value == high))):
            yield f"{key} must {_describe_range(low, high, low_ok, high_ok)}, not {value}{_advice(key)}"
    yield from _model_problems(config)
    yield from _algorithm_problems(config.grpo, config.model.lora_rank, config.data.sampling == "pass_rate")
    yield from _batch_problems(config)
    yield from _length_problems(config)
    yield from environment_problems(config)
    yield from _data_problems(config)
    yield from _stopping_problems(config)
    yield from _process_problems(config.distributed)
    yield from optimizer_problems(config.optimizer, config.scheduler)
    yield from _prompt_problems(config)
    steps = config.tracking.profile_steps
    if len(steps) != 2 or not 1 <= steps[0] <= steps[1]:
        yield (
            f"tracking.profile_steps must be the first and the last step to trace, counted from 1, not {steps}; for "
            "example [3,5]"
        )
    if config.training.save_reward_analysis and config.rollouts.share == 0:
        yield (
            "training.save_reward_analysis=true requires stored rollouts, but rollouts.share is 0; set "
            "rollouts.share above 0, or training.save_reward_analysis=false"
        )
    for name, args in config.rewards.args.items():
        if not isinstance(args, dict):
            yield f"rewards.args.{name} must be a mapping, not {args!r}; use rewards.args.{name}.PARAMETER=VALUE"
    for name, component in config.reward.components.items():
        if not isinstance(component, dict | str):
            yield f"reward.components.{name} must be a reward or {{function: …, weight: …}}, not {component!r}"


def _process_problems(distributed: DistributedConfig) -> Iterator[str]:
    address, count, index = distributed.coordinator_address, distributed.num_processes, distributed.process_id
    if address is not None and re.fullmatch(r".+:\d{1,5}", address) is None:
        yield f"distributed.coordinator_address must be HOST:PORT, not {address!r}; HOST is the machine of process 0"
    if count is not None and index is not None and index >= count > 0:
        yield (
            f"distributed.process_id must be below distributed.num_processes, but {index} is not below {count}; use "
            f"0 to {count - 1}"
        )
    if any(device < 0 for device in distributed.local_device_ids or []):
        yield f"distributed.local_device_ids must be numbers from 0, not {distributed.local_device_ids}"


def _too_low(config: Config, keys: Iterable[str], prefix: str = "") -> Iterator[str]:
    """Yield a line for each key below its minimum; `prefix` replaces the key's group in messages."""
    for key in keys:
        value = _value(config, key)
        if value is not None and not value >= _AT_LEAST[key]:  # type: ignore[operator]
            name = prefix + key.rpartition(".")[2] if prefix else key
            yield f"{name} must be at least {_AT_LEAST[key]}, not {value}{_advice(key)}"


def _data_problems(config: Config) -> Iterator[str]:
    data = config.data
    yield from data_problems(data, "data.", streaming=data.streaming)
    if data.streaming and config.training.num_batches is None:
        yield (
            "data.streaming=true requires training.num_batches, because the number of rows is not known; set "
            "training.num_batches"
        )
    if data.sampling == "pass_rate" and data.streaming:
        yield (
            "data.sampling=pass_rate requires all rows in memory, to draw them again, but data.streaming=true; set "
            "data.streaming=false, or data.sampling=uniform"
        )
    problems = list(mixture_problems(config))
    yield from problems
    if problems:
        return
    for name, of_mixture in data_sets(config).items():
        own, prefix = data.mixture[name], f"data.mixture.{name}."
        keys = [key for key in _AT_LEAST if key.startswith("data.") and key.rpartition(".")[2] in own]
        yield from _too_low(of_mixture.config, keys, prefix)
        if own.keys() & {"answer_mark", "curriculum", "problems", "tasks"}:
            yield from data_problems(of_mixture.config.data, prefix, streaming=data.streaming)


def _stopping_problems(config: Config) -> Iterator[str]:
    stopping = config.stopping
    if stopping.metric is None:
        if stopping.patience is not None:
            yield (
                "stopping.patience requires stopping.metric, but it is null; for example stopping.metric=eval/accuracy"
            )
    elif config.evaluation.num_samples == 0 and stopping.metric.startswith("eval/"):
        yield f"stopping.metric={stopping.metric} requires evaluations, but evaluation.num_samples is 0; set it above 0"
    elif config.training.eval_every_n_steps == 0:
        yield (
            "stopping.metric requires evaluations during training, but training.eval_every_n_steps is 0; set it above 0"
        )


def _prompt_problems(config: Config) -> Iterator[str]:
    prompt = config.prompt
    try:
        datetime.date.fromisoformat(prompt.date)
    except ValueError:
        yield f"prompt.date must be a date YYYY-MM-DD, not {prompt.date!r}"
    for name in sorted({"messages", "add_generation_prompt"} & prompt.template_args.keys()):
        yield f"prompt.template_args.{name} cannot be set, because the run passes it to the chat template; remove it"
    if prompt.template is not None and not _names_a_column(prompt.template):
        yield (
            f"prompt.template must contain a column in braces, but {prompt.template!r} would give every row the same "
            "prompt; add `{question}`, or set prompt.template=null for the problem alone"
        )


def _names_a_column(template: str) -> bool:
    """Return True if a template names a column; an invalid template is reported where it is read."""
    try:
        return any(name is not None for _, name, _, _ in string.Formatter().parse(template))
    except ValueError:
        return True


def _advice(key: str) -> str:
    return f"; {_ADVICE[key]}" if key in _ADVICE else ""


def _describe_range(low: float, high: float, low_ok: bool, high_ok: bool) -> str:
    lower = f"{'be at least' if low_ok else 'be above'} {low:g}"
    if high == math.inf:
        return f"{lower} and finite"
    return f"{lower} and {'at most' if high_ok else 'below'} {high:.10g}"


def _algorithm_problems(grpo: GrpoConfig, lora_rank: int, by_pass_rate: bool) -> Iterator[str]:
    """Yield a line for each setting that contradicts another or would silently do nothing."""
    high = grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high
    if grpo.loss in ("gspo", "gmpo") and grpo.loss_agg_mode != "sequence-mean-token-mean":
        yield (
            f"grpo.loss={grpo.loss} requires grpo.loss_agg_mode=sequence-mean-token-mean, because it has one loss per "
            f"completion, but the mode is {grpo.loss_agg_mode}; change the mode, or use grpo.loss=gspo_token"
        )
    if grpo.loss == "reinforce" and grpo.num_iterations > 1:
        yield (
            "grpo.loss=reinforce requires grpo.num_iterations=1, because it has no importance ratio, but it is "
            f"{grpo.num_iterations}; use grpo.loss=grpo for several iterations"
        )
    if grpo.teacher is None:
        if grpo.loss == "none":
            yield "grpo.loss=none requires grpo.teacher, because nothing else trains; set grpo.teacher, or another loss"
        if grpo.teacher_top_k is not None:
            yield (
                f"grpo.teacher_top_k={grpo.teacher_top_k} requires grpo.teacher, but it is null; set grpo.teacher, or "
                "remove the key"
            )
    for name in _UNREAD_CLIPS.get(grpo.loss, ()):
        if getattr(grpo, name) is not None:
            yield f"grpo.{name} must be null with grpo.loss={grpo.loss}, which does not use it; remove it"
    if grpo.epsilon_c is not None and grpo.epsilon_c <= 1.0 + high:
        yield (
            f"grpo.epsilon_c must be above 1 + the upper clip = {1.0 + high:g}, not {grpo.epsilon_c:g}; 3 is usual, "
            "null disables it"
        )
    if grpo.entropy_target is not None and grpo.entropy_coefficient == 0.0:
        yield (
            "grpo.entropy_target requires grpo.entropy_coefficient above 0, but it is 0; set it, for example to 0.01, "
            "or remove the target"
        )
    if grpo.off_policy_threshold is not None and grpo.num_iterations == 1:
        yield (
            "grpo.off_policy_threshold requires grpo.num_iterations above 1, because the first update trains the "
            "policy that sampled, but it is 1; set it to 2, or remove the threshold"
        )
    if grpo.sampler_correction != "none" and grpo.num_iterations > 1:
        yield (
            f"grpo.sampler_correction={grpo.sampler_correction} requires grpo.num_iterations=1, because the importance "
            f"ratios of several updates hold the correction already, but it is {grpo.num_iterations}; set "
            "grpo.sampler_correction=none"
        )
    if grpo.top_entropy_share < 1.0 and grpo.loss in ("gspo", "gmpo"):
        yield (
            f"grpo.top_entropy_share must be 1 with grpo.loss={grpo.loss}, which has one loss per completion, but is "
            f"{grpo.top_entropy_share:g}; set it to 1, or use grpo.loss=grpo or gspo_token"
        )
    if grpo.dynamic_sampling_rounds > 0 and grpo.advantage_scaling == "component":
        yield (
            "grpo.dynamic_sampling_rounds must be 0 with grpo.advantage_scaling=component, which also learns from "
            "groups with equal totals; set it to 0, or use another scaling"
        )
    if grpo.filter_by is not None and not (grpo.dynamic_sampling_rounds or by_pass_rate):
        yield (
            f"grpo.filter_by={grpo.filter_by} requires grpo.dynamic_sampling_rounds above 0 or data.sampling=pass_rate,"
            " because nothing else reads it; set one of them, or grpo.filter_by=null"
        )
    if grpo.reference_sync_steps > 0:
        if grpo.beta == 0.0:
            yield (
                "grpo.reference_sync_steps requires a reference policy, but grpo.beta=0 removes it; set "
                "grpo.reference_sync_steps=0, or grpo.beta above 0"
            )
        if lora_rank > 0 and grpo.reference_sync_mix < 1.0:
            yield (
                "grpo.reference_sync_mix must be 1 with an adapter, because a mix of adapter factors is not a mix of "
                f"weights, but it is {grpo.reference_sync_mix:g} with model.lora_rank {lora_rank}; set "
                "grpo.reference_sync_mix=1"
            )


def _model_problems(config: Config) -> Iterator[str]:
    model = config.model
    if model.path is None and model.model_size != "tiny":
        yield (
            f"model.path is required for model.model_size {model.model_size}: set model.path=DIR, a Hugging Face model"
            f" directory, model.path=hf://owner/name, or model=tiny for the embedded model"
        )
    try:
        read_mesh_shape(model.mesh_shape)
    except ValueError as error:
        yield str(error)
    if model.lora_module_path is not None:
        try:
            re.compile(model.lora_module_path)
        except re.error as error:
            yield f"model.lora_module_path must be a regular expression, not {model.lora_module_path!r:.200}: {error}"

    if model.quantization is not None:
        if model.quantization not in QUANTIZATIONS:
            yield (
                f"model.quantization must be null, {' or '.join(QUANTIZATIONS)}, not {model.quantization!r}"
                f"{suggest(model.quantization, QUANTIZATIONS)}"
            )
        if model.lora_rank == 0:
            yield (
                f"model.quantization={model.quantization} requires an adapter, because it freezes the base; set "
                "model.lora_rank above 0 (for example 16), or model.quantization=null"
            )


def _batch_problems(config: Config) -> Iterator[str]:
    training = config.training
    try:
        shape = read_mesh_shape(config.model.mesh_shape)
    except ValueError:
        return  # reported already
    batch = _Batch(
        size=training.batch_size,
        micro=training.micro_batch_size,
        steps=training.gradient_accumulation_steps,
        generations=config.grpo.num_generations,
        devices=1 if shape is None else shape.row_shards,
    )
    if any(number is not None and number < 1 for number in dataclasses.astuple(batch)):
        return  # their ranges are reported already
    if problem := batch.problem():
        yield problem + batch.remedy(shape)


@dataclass(frozen=True)
class _Batch:
    """Settings that divide a step's prompts."""

    size: int  # prompts per step
    micro: int | None  # prompts per micro-batch; None if the others determine it
    steps: int | None  # micro-batches per step; None if the others determine it
    generations: int  # completions per prompt
    devices: int  # number of devices that share the completions of a micro-batch

    def problem(self) -> str | None:
        """Return the first disagreement; None if there is none."""
        return self._division_problem() or self._device_problem()

    def remedy(self, shape: MeshShape | None) -> str:
        """Return a hint with values that fix all problems, or else at least the uneven division."""
        for problem_of in (_Batch.problem, _Batch._division_problem):
            found = []
            for name, values in self._candidates().items():
                good = next((value for value in values if problem_of(replace(self, **{name: value})) is None), None)
                if good is not None:
                    found.append(f"{_BATCH_KEYS[name]}={good}")
            if found:
                return f"; use {' or '.join(found)}"
        return f"; use another model.mesh_shape than {shape}"

    def _micro_size(self) -> int:
        return self.micro or self.size // (self.steps or 1)

    def _division_problem(self) -> str | None:
        for name, divisor in (("micro", self.micro), ("steps", self.steps)):
            if divisor is not None and self.size % divisor:
                return (
                    f"training.batch_size must be divisible by {_BATCH_KEYS[name]}, but {self.size} is not divisible"
                    f" by {divisor}"
                )
        if self.micro is not None and self.steps is not None and self.micro * self.steps != self.size:
            return (
                f"training.micro_batch_size × training.gradient_accumulation_steps must be training.batch_size, but"
                f" {self.micro} × {self.steps} = {self.micro * self.steps} is not {self.size}"
            )
        return None

    def _device_problem(self) -> str | None:
        rows = self._micro_size() * self.generations
        if rows % self.devices == 0:
            return None
        return (
            "a micro-batch of completions must be divisible by the devices that share its rows (data × fsdp of "
            f"model.mesh_shape), but {self._micro_size()} prompts × grpo.num_generations {self.generations} = {rows} "
            f"is not divisible by {self.devices}"
        )

    def _candidates(self) -> dict[str, Iterable[int]]:
        """Return values to try for each setting, the nearest first."""
        unit = self.micro or self.steps or 1
        first = math.ceil(self.size / unit)
        both = self.micro is not None and self.steps is not None
        values: dict[str, Iterable[int]] = {
            "size": [unit * (self.steps or 1)] if both else (unit * n for n in range(first, first + self.devices))
        }
        for name in ("micro", "steps"):
            if (given := getattr(self, name)) is not None:
                values[name] = sorted(_divisors(self.size), key=lambda divisor: (divisor > given, abs(divisor - given)))
        if not self._division_problem():
            values["generations"] = range(self.generations, self.generations + self.devices)
        return values


_BATCH_KEYS = {
    "size": "training.batch_size",
    "micro": "training.micro_batch_size",
    "steps": "training.gradient_accumulation_steps",
    "generations": "grpo.num_generations",
}


def _divisors(number: int) -> set[int]:
    low = {n for n in range(1, math.isqrt(number) + 1) if number % n == 0}
    return low | {number // n for n in low}


# Each token that is sampled is compared with all of them.
MOST_EOS_TOKENS = 100
# Hydra reads `\n` in a command as two characters. Names of LaTeX commands, such as `\nabla`, go on in lower case.
_ESCAPED_LINE_FEED = re.compile(r"\\n(?![a-z])")


def _length_problems(config: Config) -> Iterator[str]:
    generation = config.generation
    eos = generation.eos_tokens
    if eos is not None and not (eos and 0 <= min(eos) <= max(eos) < 2**31):
        yield f"generation.eos_tokens must list token ids from 0, not {eos}; null takes the tokenizer's own"
    elif eos is not None and len(eos) > MOST_EOS_TOKENS:
        yield f"generation.eos_tokens must list at most {MOST_EOS_TOKENS} ids, not {len(eos):,}; remove some"
    if not all(generation.stop_strings):
        yield f"generation.stop_strings must list texts that are not empty, not {generation.stop_strings}"
    if any(_ESCAPED_LINE_FEED.search(text) for text in generation.stop_strings):
        yield (
            f"generation.stop_strings must have line feeds where {generation.stop_strings} has a backslash and n; in a "
            r"""command, write $'generation.stop_strings=["\nQuestion:"]'"""
        )
    given = generation.max_prompt_length
    needed = (given or 1) + episode_tokens(config)
    longest = "environment.max_episode_tokens" if has_environment(config) else "generation.max_generation_steps"
    if generation.cache_size is not None and needed > generation.cache_size:
        yield (
            f"generation.max_prompt_length {given or 1} + {longest} "
            f"{episode_tokens(config)} = {needed} must be at most generation.cache_size "
            f"{generation.cache_size}; use generation.cache_size={needed}, or null"
        )


def evaluated_rows(config: Config) -> int:
    """Return the most rows of an evaluation: what `evaluation.num_samples` and `training.num_test_batches` allow."""
    rows, batches = config.evaluation.num_samples, config.training.num_test_batches
    return rows if batches is None else min(rows, batches * config.evaluation.batch_size)


def micro_batch_size(config: Config) -> int:
    """Return the prompts per forward and backward pass, from whichever of the two keys is set."""
    training = config.training
    if training.micro_batch_size is not None:
        return training.micro_batch_size
    return training.batch_size // (training.gradient_accumulation_steps or 1)
