"""`GRPOConfig` with the fields and defaults of TRL 1.16 and of the `TrainingArguments` that it inherits.

The tables below are all that is known of a field: its type and default in TRL, and what becomes of it here. A `?` after
a type stands for `| None`. The docs show the same tables.
"""

import dataclasses
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from agent_tunix.errors import ConfigError

MAPPED, REFUSED, UNNEEDED = "mapped", "refused", "unneeded"

# `⇒ key`: the value is that of the key, and None leaves the key's default. `→ key | how`: `settings.py` or the trainer
# converts it.
_MAPPED = """
output_dir: str? = None → directory | that of `save_model`; the run itself has OUTPUT_DIR-run, OUTPUT_DIR-run-2, …
per_device_train_batch_size: int = 8 → training.micro_batch_size | × devices ÷ num_generations: it counts completions
num_train_epochs: float = 3.0 → training.num_batches | as many batches as fit into the epochs
max_steps: int = -1 → training.num_batches | ÷ num_iterations: it counts updates
learning_rate: float = 1e-06 ⇒ optimizer.learning_rate
lr_scheduler_type: str = "linear" → scheduler.kind | linear, cosine…, constant…, inverse_sqrt
lr_scheduler_kwargs: dict | str? = None → scheduler.final_ratio | min_lr and min_lr_rate alone
warmup_steps: float = 0 → optimizer.warmup_ratio | updates, or a share below 1; the first update learns
optim: str = "adamw_torch_fused" → optimizer.kind | AdamW, Adafactor, Lion, SGD; 8-bit and paged ones keep full states
weight_decay: float = 0.0 ⇒ optimizer.weight_decay
adam_beta1: float = 0.9 → optimizer.beta1 | AdamW and Lion
adam_beta2: float = 0.999 → optimizer.beta2 | AdamW and Lion
adam_epsilon: float = 1e-08 → optimizer.epsilon | AdamW
gradient_accumulation_steps: int = 1 → training.batch_size | × per_device_train_batch_size × devices, in completions
max_grad_norm: float = 1.0 ⇒ optimizer.max_grad_norm
bf16: bool? = None → model.dtype | None: float32 on a CPU, bfloat16 elsewhere; False: float32
activation_checkpointing: bool? = None → model.remat | the newer name of gradient_checkpointing
gradient_checkpointing: bool = True → model.remat
logging_strategy: str = "steps" → log_history | steps, epoch or no
logging_steps: float = 10 → log_history | means over these updates; metrics.jsonl has every step
logging_first_step: bool = False → log_history
log_level: str = "passive" → training.log_level
disable_tqdm: bool? = None → tracking.progress | True: none
report_to: None | str | list[str] = "none" → tracking.tensorboard, tracking.mlflow, wandb_disabled | others: callbacks
run_name: str? = None ⇒ project_name
project: str = "huggingface" → training.wandb_project | the variable WANDB_PROJECT comes first
eval_strategy: str = "no" → evaluation.num_samples | no: 0; steps, epoch: all rows of eval_dataset
eval_steps: float? = None → training.eval_every_n_steps | or a share below 1; the last step is always evaluated
per_device_eval_batch_size: int = 8 → evaluation.batch_size | × devices
eval_on_start: bool = False → log_history | a run always evaluates before it trains; False: not in log_history
save_strategy: str = "steps" → training.save_interval_steps | steps, epoch, best; no: the last step alone
save_steps: float = 500 → training.save_interval_steps | or a share below 1
save_total_limit: int? = None → training.max_checkpoints_to_keep | None: all
push_to_hub: bool = False → Run.export | `save_model` uploads too
hub_token: str? = None → Run.export | of `push_to_hub`
hub_private_repo: bool? = None → Run.export | of `push_to_hub`; None: private
hub_model_id: str? = None → Run.export | of `push_to_hub`; None: the name of output_dir
hub_strategy: str = "every_save" → Run.export | end, every_save: the upload is that of `save_model`
load_best_model_at_end: bool = False → stopping.metric | `save_model` writes the best step
metric_for_best_model: str? = None → stopping.metric | reward or rewards/NAME/mean, also with eval_
greater_is_better: bool? = None → stopping.mode
seed: int = 42 ⇒ seed
use_cpu: bool = False → distributed.platform | True: cpu
remove_unused_columns: bool? = False → data | True: rewards get the prompt alone
model_init_kwargs: dict[str, Any] | str? = None → model.path, model.dtype, model.quantization | what names them
num_generations: int? = 8 → grpo.num_generations
num_generations_eval: int? = None → evaluation.num_passes | None: num_generations
max_completion_length: int? = 512 → generation.max_generation_steps | with tools also environment.max_episode_tokens
shuffle_dataset: bool? = True ⇒ data.shuffle
generation_batch_size: int? = None → training.batch_size | as steps_per_generation
steps_per_generation: int? = None → training.batch_size | it divides gradient_accumulation_steps
temperature: float = 1.0 ⇒ generation.temperature
top_p: float = 1.0 ⇒ generation.top_p
top_k: int = 0 → generation.top_k | 0, -1: null
min_p: float? = None ⇒ generation.min_p
generation_kwargs: dict[str, Any] | str? = None → generation | temperature, top_p, top_k, min_p, stop_strings, …
chat_template_kwargs: dict[str, Any] | str? = None → prompt.template_args
beta: float = 0.0 ⇒ grpo.beta
num_iterations: int = 1 ⇒ grpo.num_iterations
epsilon: float = 0.2 ⇒ grpo.epsilon
delta: float? = None ⇒ grpo.epsilon_c
epsilon_high: float? = None → grpo.epsilon_high | with loss_type="cispo" less 1
sapo_temperature_neg: float = 1.05 ⇒ grpo.tau_negative
sapo_temperature_pos: float = 1.0 ⇒ grpo.tau_positive
importance_sampling_level: str = "token" → grpo.loss | sequence: gspo, or gspo_token where loss_type sums tokens
reward_weights: list[float]? = None → reward.components | the weight of each
multi_objective_aggregation: str = "sum_then_normalize" → grpo.advantage_scaling | normalize_then_sum: component
scale_rewards: str = "group" → grpo.advantage_scaling | group, batch, none, True, False
loss_type: str = "dapo" → grpo.loss, grpo.loss_agg_mode | all but vespo; bnpo without accumulation
mask_truncated_completions: bool = False ⇒ grpo.mask_truncated
sync_ref_model: bool = False → grpo.reference_sync_steps | False: 0
ref_model_mixup_alpha: float = 0.6 → grpo.reference_sync_mix | with sync_ref_model
ref_model_sync_steps: int = 512 → grpo.reference_sync_steps | with sync_ref_model
top_entropy_quantile: float = 1.0 ⇒ grpo.top_entropy_share
entropy_coef: float = 0.0 ⇒ grpo.entropy_coefficient
max_tool_calling_iterations: int? = None → environment.max_turns | plus 1, the answer; None: what fits
off_policy_mask_threshold: float? = None → grpo.off_policy_threshold | with num_iterations=1 it masks nothing
use_bias_correction_kl: bool = True → grpo.kl_estimator | True: unbiased_kl; False: low_var_kl
log_completions: bool = False ⇒ training.log_rewards
num_completions_to_print: int? = None ⇒ tracking.num_samples
max_prompt_length: int? = None ⇒ generation.max_prompt_length
warmup_ratio: float? = None → optimizer.warmup_ratio
logging_dir: str? = None ⇒ training.log_dir
no_cuda: bool = False → distributed.platform | True: cpu
"""

# `→ effect of another value in TRL | what to do here`.
_REFUSED = """
optim_args: str? = None → sets arguments of the optimizer | set adam_beta1 and its neighbours
optim_target_modules: None | str | list[str] = None → projects gradients (GaLore) | peft_config takes less memory
fp16: bool = False → computes in float16 | set bf16=True
neftune_noise_alpha: float? = None → adds noise to the embeddings | leave it None
auto_find_batch_size: bool = False → is an error | `agent-tunix plan` finds the batch that fits
eval_delay: float = 0 → skips the first evaluations | leave it 0, or raise eval_steps
hub_revision: str? = None → uploads to a branch | the upload is to the main branch; leave it None
ignore_data_skip: bool = False → resumes with the first rows | a resumed run continues with its rows
restore_callback_states_from_checkpoint: bool = False → restores callbacks | keep such state in a file of your own
parallelism_config: Any = None → divides the work over processes | one process uses all devices
router_aux_loss_coef: float? = None → adds a loss that balances experts | leave it None
repetition_penalty: float = 1.0 → makes repeated tokens unlikely | leave it 1.0; the reward `repetition` penalises them
vllm_structured_outputs_regex: str? = None → restricts completions to a pattern | reward the format instead
vllm_guided_decoding_regex: str? = None → restricts completions to a pattern | reward the format instead
use_adaptive_entropy: bool = False → moves the entropy bonus step by step | set entropy_coef alone
log_unique_prompts: bool = False → logs one completion a prompt | the run's rollouts have all; leave it False
log_completions_hub_repo: str? = None → uploads completions | upload rollouts/ of the run's directory
"""

# A reason, and the fields that it explains.
_UNNEEDED = """
* TRL's GRPOTrainer does not read it either
label_smoothing_factor: float = 0.0; data_seed: int? = None; label_names: list[str]? = None
train_sampling_strategy: str = "random"; length_column_name: str = "length"; group_by_length: bool = False
* a setting of PyTorch; XLA compiles the model here
tf32: bool? = None; activation_checkpointing_kwargs: dict[str, Any] | str? = None
gradient_checkpointing_kwargs: dict[str, Any] | str? = None; torch_compile: bool = False
torch_compile_backend: str? = None; torch_compile_mode: str? = None; use_liger_kernel: bool = False
liger_kernel_config: dict[str, bool]? = None; torch_empty_cache_steps: int? = None; debug: str = ""
use_liger_loss: bool = False; torchdynamo: str? = None
* one process uses all devices of the machine; model.mesh_shape divides the work
log_on_each_node: bool = True; log_level_replica: str = "warning"; save_on_each_node: bool = False
accelerator_config: dict[str, Any] | str? = None; ddp_find_unused_parameters: bool? = None
ddp_bucket_cap_mb: int? = None; ddp_broadcast_buffers: bool? = None; ddp_static_graph: bool? = None
ddp_backend: str? = None; ddp_timeout: int = 1800; fsdp: str? = None; fsdp_config: dict[str, Any] | str? = None
deepspeed: dict | str? = None; local_rank: int = -1; ds3_gather_for_generation: bool = True
average_tokens_across_devices: bool = True
* a detail of the Trainer's own evaluation loop
prediction_loss_only: bool = False; eval_do_concat_batches: bool = True; eval_use_gather_object: bool = False
eval_accumulation_steps: int? = None; include_for_metrics: list[str] = []; batch_eval_metrics: bool = False
bf16_full_eval: bool = False; fp16_full_eval: bool = False
* rows are prepared in memory while the devices work
dataloader_drop_last: bool = False; dataloader_num_workers: int = 0; dataloader_pin_memory: bool = True
dataloader_persistent_workers: bool = False; dataloader_prefetch_factor: int? = None
dataloader_multiprocessing_context: str? = None; dataloader_in_order: bool = True
* a flag for scripts, which the trainer does not read
do_train: bool = False; do_predict: bool = False; do_eval: bool = False; resume_from_checkpoint: str? = None
* the package samples itself, on the devices of the run
use_vllm: bool = False; vllm_mode: str = "colocate"; vllm_model_impl: str = "vllm"
vllm_enable_sleep_mode: bool = False; vllm_server_base_url: str? = None
vllm_server_host: str = "0.0.0.0"; vllm_server_port: int = 8000; vllm_server_timeout: float = 240.0
vllm_group_port: int = 51216; vllm_gpu_memory_utilization: float = 0.3; vllm_max_model_length: int? = None
vllm_tensor_parallel_size: int = 1; vllm_importance_sampling_correction: bool = True
vllm_importance_sampling_mode: str = "sequence_mask"; vllm_importance_sampling_clip_max: float? = 3.0
vllm_importance_sampling_clip_min: float? = None; vllm_importance_sampling_cap: float? = None
vllm_device: str? = None; vllm_dtype: str? = None; vllm_max_model_len: int? = None
* only read with loss_type="vespo", which is refused
vespo_k_pos: float = 2.0; vespo_lambda_pos: float = 3.0; vespo_k_neg: float = 3.0; vespo_lambda_neg: float = 2.0
* only read with use_adaptive_entropy, which is refused
entropy_coef_min: float = 0.0; entropy_coef_max: float = 1.0; entropy_coef_delta: float = 0.005
entropy_target: float = 0.2
* the callback of report_to="trackio" reads it
trackio_space_id: str? = None; trackio_bucket_id: str? = None; trackio_static_space_id: str? = None
* the package has its own sampler and key-value cache
use_transformers_continuous_batching: bool = False; use_transformers_paged: bool = False
transformers_continuous_batching_config: dict | str? = None; cache_implementation: str? = None
use_cache: bool = False; pad_to_multiple_of: int | str? = "auto"
* a checkpoint is always written on SIGTERM and Ctrl-C, complete, and can be resumed
save_only_model: bool = False; enable_jit_checkpoint: bool = False; hub_always_push: bool = False
* no code of a model's repository runs; an unknown family is an error
trust_remote_code: bool = False
* no dropout is applied
disable_dropout: bool = False
* a run always does so
cast_lm_head_to_fp32: bool = False; full_determinism: bool = False; save_safetensors: bool = True
include_num_input_tokens_seen: str | bool = "no"
* a figure that cannot be computed is null
logging_nan_inf_filter: bool = True
* metrics.jsonl has times; `agent-tunix plan` shows memory
skip_memory_metrics: bool = True
* rollouts have every completion
wandb_log_unique_prompts: bool? = None
* completions are text
log_multimodal: bool = True
* a run gets a new directory; `save_model` replaces its own export
overwrite_output_dir: bool = False
"""

# The part of accelerate's `Accelerator` and `PartialState` that scripts use.
ONE_PROCESS = SimpleNamespace(
    is_main_process=True, print=print, wait_for_everyone=lambda: None, num_processes=1, process_index=0
)

_JSON = ("lr_scheduler_kwargs", "model_init_kwargs", "generation_kwargs", "chat_template_kwargs")


class TrlField(NamedTuple):
    """A row of the tables: a field.

    Attributes:
        kind: `mapped`, `refused` or `unneeded`.
        target: Keys of this package; of a refused field, what another value does in TRL.
        note: How it is converted, what to do instead, or why it is unneeded.
        is_direct: True if its value is that of the key.
        annotation: Its type.
        default: Its default in TRL.
    """

    kind: str
    target: str
    note: str
    is_direct: bool
    annotation: str
    default: Any


def _read_tables() -> Iterator[tuple[str, TrlField]]:
    for kind, table in ((MAPPED, _MAPPED), (REFUSED, _REFUSED)):
        for line in table.strip().splitlines():
            head, arrow, rest = line.partition(" → ") if " → " in line else line.partition(" ⇒ ")
            target, _, note = rest.partition(" | ")
            yield _read_field(head, kind, target, note, arrow == " ⇒ ")
    for group in _UNNEEDED.strip().removeprefix("* ").split("\n* "):
        reason, _, lines = group.partition("\n")
        for head in lines.replace("\n", "; ").split("; "):
            yield _read_field(head, UNNEEDED, "", reason, False)


def _read_field(head: str, kind: str, target: str, note: str, is_direct: bool) -> tuple[str, TrlField]:
    name, _, rest = head.partition(": ")
    annotation, _, value = rest.partition(" = ")
    default = json.loads(value.replace("None", "null").replace("True", "true").replace("False", "false"))
    return name, TrlField(kind, target, note, is_direct, annotation.replace("?", " | None"), default)


FIELDS = dict(_read_tables())


def _make_field(name: str, field: TrlField) -> tuple[str, Any, Any]:
    """Return name, type and `dataclasses.field`; TRL's parser of command lines reads the metadata."""
    metadata = {"help": f"{field.kind}: {field.note or field.target}".replace("%", "%%")}
    options: dict[str, Any] = {"metadata": metadata, "kw_only": name != "output_dir"}
    options |= {"default_factory": list} if field.default == [] else {"default": field.default}
    return name, eval(field.annotation, {"Any": Any}), dataclasses.field(**options)


_Fields: Any = dataclasses.make_dataclass(
    "_Fields",
    [_make_field(*item) for item in FIELDS.items()],
    namespace={"__post_init__": lambda self: None},  # `__init__` calls it only if the class has one
)


class GRPOConfig(_Fields):  # type: ignore[misc]
    """Settings of a `GRPOTrainer`, named as in TRL; all but `output_dir` are given by name.

    Raises:
        ConfigError: A field that this package does not have is not at its default.
    """

    # What scripts read of TrainingArguments besides the fields.
    world_size = n_gpu = 1
    process_index = local_process_index = 0
    should_save = should_log = True
    device = "jax"
    distributed_state = ONE_PROCESS

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, str) and name in _JSON:
                try:
                    value = json.loads(value)
                except ValueError as error:
                    raise ConfigError(
                        f"GRPOConfig.{name} must be a mapping or JSON text, not {value!r}: {error}"
                    ) from error
            setattr(self, name, plain(value))
            if isinstance(value, bool) and name == "scale_rewards":
                setattr(self, name, "group" if value else "none")
        if self.metric_for_best_model is not None and self.greater_is_better is None:  # as callbacks read it
            self.greater_is_better: bool | None = not self.metric_for_best_model.endswith("loss")
        check_fields(self)

    def get_process_log_level(self) -> int:
        """Return the level of `logging` that `log_level` names."""
        return int(getattr(logging, self.log_level.upper(), logging.INFO))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, without the token of the hub."""
        return dict(vars(self)) | ({"hub_token": "<HUB_TOKEN>"} if self.hub_token else {})

    def to_sanitized_dict(self) -> dict[str, Any]:
        """Return the fields for a tracker, with other values than numbers and texts as texts."""
        return {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in self.to_dict().items()
        }


def refuse(name: str, value: object, effect: str, instead: str) -> NoReturn:
    """Raise ConfigError for an argument of TRL that this package does not have.

    Args:
        name: Name of the argument.
        value: Its value.
        effect: What the value does in TRL; it begins with a verb.
        instead: What to do here.
    """
    raise ConfigError(f"{name}={value!r:.200} {effect} in TRL; here {instead}", code="unsupported_argument")


def plain(value: Any) -> Any:
    """Return the value of a member of an enumeration, such as `IntervalStrategy.STEPS`; other values as they are."""
    return value.value if hasattr(type(value), "__members__") else value


def check_fields(config: GRPOConfig) -> None:
    """Raise ConfigError if a refused field is not at its default."""
    for name, value in changed_fields(config, REFUSED):
        refuse(f"GRPOConfig.{name}", value, FIELDS[name].target, FIELDS[name].note)


def changed_fields(config: GRPOConfig, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the fields of a kind that are not at their defaults."""
    for name, field in FIELDS.items():
        value = getattr(config, name)
        is_empty = field.default in (None, "no") and value in ("", False, [], {})
        if field.kind == kind and value != field.default and not is_empty:
            yield name, value
