"""Conversion of a `GRPOConfig` to overrides of this package.

TRL counts completions where this package counts prompts, and updates where it counts batches of prompts.
"""

import importlib
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import ConfigError
from agent_tunix.trl.config import FIELDS, UNNEEDED, GRPOConfig, changed_fields, plain, refuse

_LOGGER = logging.getLogger("agent_tunix.trl")

Values = dict[str, Any]

# loss_type → (loss, aggregation); with importance_sampling_level="sequence" the loss is another.
_LOSSES = {
    "grpo": ("grpo", "sequence-mean-token-mean"),
    "dapo": ("grpo", "token-mean"),
    "bnpo": ("grpo", "token-mean"),
    "dr_grpo": ("grpo", "sequence-mean-token-sum-norm"),
    "luspo": ("grpo", "sequence-mean-token-sum"),
    "cispo": ("cispo", "token-mean"),
    "sapo": ("sapo", "sequence-mean-token-mean"),
}
_TRACKERS = {"tensorboard": "tracking.tensorboard", "mlflow": "tracking.mlflow", "wandb": "wandb_disabled"}
_GENERATION = {
    **{name: f"generation.{name}" for name in ("temperature", "top_p", "top_k", "min_p", "stop_strings")},
    "max_new_tokens": "generation.max_generation_steps",
}
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a run, in prompts."""

    size: int  # prompts of an update
    micro_size: int  # prompts of a forward and backward pass
    num_steps: int  # batches of the run
    per_epoch: int  # batches of a pass over the rows
    num_iterations: int  # updates of a batch

    @property
    def num_updates(self) -> int:
        """Updates of the run."""
        return self.num_steps * self.num_iterations

    def count(self, steps: float) -> int:
        """Return the batches of a number of updates; a number below 1 is a share of the run."""
        updates = math.ceil(steps * self.num_updates) if steps < 1 else steps
        return max(1, math.ceil(updates / self.num_iterations))


def plan_batches(args: GRPOConfig, num_rows: int, num_devices: int = 1) -> BatchPlan:
    """Return the batches of a run.

    Args:
        args: Settings.
        num_rows: Rows of the training set.
        num_devices: Devices, each of which is a process in TRL.

    Raises:
        ConfigError: A batch holds no whole groups, or would be divided over several updates.
    """
    group = args.num_generations or 8
    at_once = args.per_device_train_batch_size * num_devices
    completions = at_once * args.gradient_accumulation_steps
    sampled = _sampled_completions(args, at_once)
    if completions % sampled:
        name = "generation_batch_size" if args.generation_batch_size is not None else "steps_per_generation"
        refuse(
            f"GRPOConfig.{name}",
            getattr(args, name),
            f"divides {sampled} sampled completions over several updates of {completions}",
            "an update samples its own batch: leave it None; num_iterations repeats updates on a batch",
        )
    if sampled % group:
        raise ConfigError(
            f"generation_batch_size ({sampled}) must be divisible by num_generations ({group}): it is"
            f" per_device_train_batch_size={args.per_device_train_batch_size} × {num_devices} devices ×"
            f" gradient_accumulation_steps={args.gradient_accumulation_steps}; set num_generations or one of these",
            code="invalid_batch",
        )
    size = completions // group
    micro = max(number for number in range(1, max(at_once // group, 1) + 1) if size % number == 0)
    if micro * group > at_once:
        _LOGGER.info("a pass takes whole groups: %d completions, not %d", micro * group, at_once)
    per_epoch = max(num_rows // size, 1)
    epochs, iterations = args.num_train_epochs, args.num_iterations
    num_steps = math.ceil(args.max_steps / iterations) if args.max_steps > 0 else math.ceil(epochs * per_epoch)
    return BatchPlan(size, micro, max(num_steps, 1), per_epoch, iterations)


def _sampled_completions(args: GRPOConfig, at_once: int) -> int:
    if args.generation_batch_size is not None and args.steps_per_generation is not None:
        raise ConfigError("generation_batch_size and steps_per_generation exclude each other; set one of them")
    if args.generation_batch_size is not None:
        return int(args.generation_batch_size)
    return at_once * int(args.steps_per_generation or args.gradient_accumulation_steps)


def convert(args: GRPOConfig, batches: BatchPlan) -> Values:
    """Return key → value for all mapped fields, without those of model, data, rewards and evaluation.

    Raises:
        ConfigError: A value has no counterpart here.
    """
    values: Values = {
        "grpo.num_generations": args.num_generations or 8,
        "grpo.skip_dead_steps": False,  # TRL takes such a step: momentum, weight decay and the KL penalty act
        "training.batch_size": batches.size,
        "training.micro_batch_size": batches.micro_size,
        "training.num_batches": batches.num_steps,
        "training.num_epochs": 1,
    }
    for name, field in FIELDS.items():
        if field.is_direct and (value := getattr(args, name)) is not None:
            values[field.target] = value
    for part in (_optimizer, _schedule, _loss, _generation, _saving, _logging, _devices):
        values |= part(args, batches)
    return values


def _optimizer(args: GRPOConfig, batches: BatchPlan) -> Values:
    name = str(args.optim).lower()
    kind = next((kind for kind in ("adamw", "adafactor", "lion", "sgd") if kind in name), None)
    if kind is None or name.startswith(("galore", "apollo", "stable", "schedule_free", "lomo", "rmsprop")):
        refuse("GRPOConfig.optim", args.optim, "chooses this optimizer", "AdamW, Adafactor, Lion and SGD exist")
    if "8bit" in name or "paged" in name or "4bit" in name:
        _LOGGER.warning("optim=%s: %s keeps its states in full precision here, which takes more memory", name, kind)
    values: Values = {"optimizer.kind": kind}
    if kind in ("adamw", "lion"):
        values |= {"optimizer.beta1": args.adam_beta1, "optimizer.beta2": args.adam_beta2}
    if kind == "adamw":
        values["optimizer.epsilon"] = args.adam_epsilon
    if kind == "sgd":
        values["optimizer.momentum"] = 0.0
    return values


def _schedule(args: GRPOConfig, batches: BatchPlan) -> Values:
    name, given = str(args.lr_scheduler_type), dict(args.lr_scheduler_kwargs or {})
    kinds = {"linear": "linear", "inverse_sqrt": "inverse_sqrt"}
    # Without `num_cycles` there is one cycle and no restart.
    kinds |= dict.fromkeys(("cosine", "cosine_with_min_lr", "cosine_with_restarts"), "cosine")
    kind = kinds.get(name, "constant" if name.startswith("constant") else None)
    if kind is None:
        refuse("GRPOConfig.lr_scheduler_type", name, "chooses this schedule", f"{', '.join(kinds)} and constant exist")
    values: Values = {"scheduler.kind": kind}
    if kind in ("linear", "cosine"):
        lowest = given.pop("min_lr", None)
        final = given.pop("min_lr_rate", lowest / args.learning_rate if lowest is not None else 0.0)
        values["scheduler.final_ratio"] = final
    if given:
        refuse("GRPOConfig.lr_scheduler_kwargs", given, "shapes the schedule", "min_lr and min_lr_rate exist")
    share = args.warmup_ratio or args.warmup_steps
    share = share if share < 1 else share / batches.num_updates
    values["optimizer.warmup_ratio"] = 0.0 if name == "constant" else min(share, 1.0)
    return values


def _loss(args: GRPOConfig, batches: BatchPlan) -> Values:
    level = args.importance_sampling_level
    if args.loss_type not in _LOSSES or level not in ("token", "sequence"):
        name = "importance_sampling_level" if args.loss_type in _LOSSES else "loss_type"
        refuse(f"GRPOConfig.{name}", getattr(args, name), "chooses a loss", f"loss_type is {', '.join(_LOSSES)}")
    loss, aggregation = _LOSSES[args.loss_type]
    if args.loss_type == "bnpo" and batches.micro_size != batches.size:
        refuse("GRPOConfig.loss_type", "bnpo", "averages each micro-batch alone", "set dapo, the mean of the batch")
    if level == "sequence" and loss != "grpo":
        refuse("GRPOConfig.importance_sampling_level", level, f"changes {loss}", "it is sequence with other losses")
    if level == "sequence":
        loss = "gspo" if args.loss_type == "grpo" else "gspo_token"
    values: Values = {"grpo.loss": loss, "grpo.loss_agg_mode": aggregation}
    if args.epsilon_high is not None:
        # TRL bounds the weights of CISPO by epsilon_high, and this package by 1 + epsilon_high.
        values["grpo.epsilon_high"] = args.epsilon_high - (loss == "cispo")
    scaling = "component" if args.multi_objective_aggregation == "normalize_then_sum" else args.scale_rewards
    values["grpo.advantage_scaling"] = scaling
    values["grpo.kl_estimator"] = "unbiased_kl" if args.use_bias_correction_kl else "low_var_kl"
    if args.off_policy_mask_threshold is not None and args.num_iterations > 1:
        values["grpo.off_policy_threshold"] = args.off_policy_mask_threshold
    if args.sync_ref_model:
        values["grpo.reference_sync_steps"] = batches.count(args.ref_model_sync_steps)
        values["grpo.reference_sync_mix"] = args.ref_model_mixup_alpha
    return values


def _generation(args: GRPOConfig, batches: BatchPlan) -> Values:
    if args.max_completion_length is None:
        refuse("GRPOConfig.max_completion_length", None, "lets completions be as long as the model", "set a number")
    given = dict(args.generation_kwargs or {})
    values: Values = {"generation.max_generation_steps": args.max_completion_length, "generation.top_k": args.top_k}
    if given.pop("do_sample", True) is not True:
        refuse("GRPOConfig.generation_kwargs", "do_sample=False", "samples greedily", "a group would be one completion")
    for name, value in given.items():
        if name not in _GENERATION:
            refuse(
                f"GRPOConfig.generation_kwargs[{name!r}]", value, "changes sampling", f"{', '.join(_GENERATION)} exist"
            )
        values[_GENERATION[name]] = [value] if name == "stop_strings" and isinstance(value, str) else value
    values["generation.top_k"] = max(values["generation.top_k"] or 0, 0) or None  # 0, and -1 with vLLM: every token
    return values


def _saving(args: GRPOConfig, batches: BatchPlan) -> Values:
    intervals: Mapping[str, Callable[[], int]] = {
        "no": lambda: 0,
        "best": lambda: _evaluation_interval(args, batches),
        "epoch": lambda: batches.per_epoch,
        "steps": lambda: batches.count(args.save_steps),
    }
    if args.save_strategy not in intervals:
        raise ConfigError(f"GRPOConfig.save_strategy must be {', '.join(intervals)}, not {args.save_strategy!r}")
    values: Values = {
        "training.save_interval_steps": intervals[args.save_strategy](),
        "training.max_checkpoints_to_keep": args.save_total_limit or batches.num_steps + 1,
    }
    if args.load_best_model_at_end or args.save_strategy == "best":
        metric = (args.metric_for_best_model or "reward").removeprefix("eval_")
        if not metric.startswith("reward"):
            refuse("GRPOConfig.metric_for_best_model", metric, "chooses the best step", "reward or rewards/NAME/mean")
        values["stopping.metric"] = f"eval/{'rewards/total/mean' if metric == 'reward' else metric}"
        values["stopping.mode"] = "min" if args.greater_is_better is False else "max"
    return values


def _logging(args: GRPOConfig, batches: BatchPlan) -> Values:
    names = reported_names(args)
    values: Values = {
        "tracking.tensorboard": "tensorboard" in names,
        "tracking.mlflow": "mlflow" in names,
        "wandb_disabled": "wandb" not in names,
        "training.wandb_project": os.environ.get("WANDB_PROJECT") or args.project if "wandb" in names else None,
        "tracking.progress": "none" if args.disable_tqdm else "auto",
    }
    if args.log_level in (*_LEVELS, "critical"):
        values["training.log_level"] = args.log_level if args.log_level in _LEVELS else "error"
    return values


def reported_names(args: GRPOConfig) -> set[str]:
    """Return the names of `report_to`."""
    reported = args.report_to or []
    return {name for name in ([reported] if isinstance(reported, str) else reported) if name != "none"}


def reporting_callbacks(args: GRPOConfig) -> list[Any]:
    """Return transformers' callbacks for the trackers of `report_to` that this package does not have.

    Raises:
        ConfigError: transformers does not know the tracker either.
    """
    names = sorted(reported_names(args) - set(_TRACKERS))
    known = _callbacks_of_transformers() if names else {}
    if unknown := [name for name in names if name not in known]:
        refuse("GRPOConfig.report_to", unknown, "sends metrics to it", f"{', '.join({**_TRACKERS, **known})} exist")
    return [known[name]() for name in names]


def _callbacks_of_transformers() -> dict[str, Any]:
    """Return the classes by name; none if transformers is not installed."""
    try:
        return dict(importlib.import_module("transformers.integrations.integration_utils").INTEGRATION_TO_CALLBACK)
    except ImportError:
        return {}


def _devices(args: GRPOConfig, batches: BatchPlan) -> Values:
    loading = dict(args.model_init_kwargs or {})
    dtype = str(plain(loading.get("dtype", loading.get("torch_dtype")))).removeprefix("torch.")
    if dtype not in ("None", "auto", "float32", "bfloat16"):
        refuse(
            "GRPOConfig.model_init_kwargs['dtype']", dtype, "is the type of the weights", "float32 and bfloat16 exist"
        )
    chosen = {None: "auto", True: "bfloat16", False: "float32"}[args.bf16]
    checkpointing = args.activation_checkpointing
    return {
        "model.dtype": dtype if chosen == "auto" and dtype != "None" else chosen,
        "model.remat": args.gradient_checkpointing if checkpointing is None else checkpointing,
        "distributed.platform": "cpu" if args.use_cpu or args.no_cuda else "auto",
    }


def evaluation_values(args: GRPOConfig, batches: BatchPlan, num_rows: int, num_devices: int = 1) -> Values:
    """Return the keys of evaluations on `num_rows` rows; with eval_strategy="no" a run has none.

    Raises:
        ConfigError: There are no rows to evaluate on.
    """
    if args.eval_strategy != "no" and not num_rows:
        raise ConfigError(f'eval_strategy="{args.eval_strategy}" requires rows: pass eval_dataset, or set it to "no"')
    values: Values = {
        "evaluation.num_samples": num_rows if args.eval_strategy != "no" else 0,
        "evaluation.batch_size": args.per_device_eval_batch_size * num_devices,
        "evaluation.num_passes": args.num_generations_eval or args.num_generations or 8,
        "evaluation.inference_config": "training",
        "evaluation.correct": "reward",
        "evaluation.with_rewards": True,
    }
    if args.eval_strategy != "no":
        values["training.eval_every_n_steps"] = _evaluation_interval(args, batches)
    return values


def _evaluation_interval(args: GRPOConfig, batches: BatchPlan) -> int:
    if args.eval_strategy == "epoch":
        return batches.per_epoch
    return batches.count(args.eval_steps if args.eval_steps is not None else args.logging_steps)


def describe_unneeded(args: GRPOConfig) -> list[str]:
    """Return each field that was set and changes nothing here, with the reason."""
    return [f"{name}={value!r} ({FIELDS[name].note})" for name, value in changed_fields(args, UNNEEDED)]
