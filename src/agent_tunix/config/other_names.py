"""Names of settings in other libraries, with the equivalent keys of this package, and suggestions for unknown keys.

Sources: `GRPOConfig` of TRL 1.16 and its base, `TrainingArguments` of transformers, and PEFT's `LoraConfig`; the PPO
configuration of verl 0.9; the arguments of OpenRLHF's `train_ppo_ray`; the GRPO arguments of ms-swift; `GRPOConfig` and
`RolloutConfig` of Tunix 0.1.7; SkyRL and verifiers.
"""

import dataclasses
import difflib
from collections.abc import Iterator


def _read(table: str) -> dict[str, str]:
    """Return name → the text after the arrow of its row; a row may begin on lines before its arrow."""
    rows: dict[str, str] = {}
    names: list[str] = []
    for line in table.strip().splitlines():
        before, arrow, text = line.partition("→")
        names += before.split()
        if arrow:
            rows |= dict.fromkeys(names, text.strip())
            names = []
    return rows


# Names → key, or key: remark on the difference. Names with dots are verl's, or those of an object.
OTHER_NAMES = {
    name: (key, remark.strip())
    for name, text in _read(
        """
label_key → data.answer_column
dataset_name train_dataset data.train_files prompt_data → data.path
dataset → data.path: a file, a directory or hf://OWNER/NAME; data=gsm8k and others choose a prepared one
data.prompt_key input_key → data.prompt_column
data_seed → data.seed
shuffle_dataset → data.shuffle
dataset_streaming → data.streaming
dataset_config → data.subset
dataset_test_split → data.test_split
dataset_train_split → data.train_split
actor_rollout_ref.rollout.multi_turn.max_assistant_turns → environment.max_turns
max_tool_calling_iterations → environment.max_turns: the last turn, without a call, counts too
environment_factory agent_func_path multi_turn_scheduler → environment.name
rollout_func actor_rollout_ref.rollout.multi_turn.enable
  → environment.name: an environment decides the turns of a rollout
tools actor_rollout_ref.rollout.multi_turn.tool_config_path → environment.tools
per_device_eval_batch_size data.val_batch_size → evaluation.batch_size
actor_rollout_ref.rollout.val_kwargs.temperature → evaluation.inference_config: greedy, standard or liberal
kv_cache_size → generation.cache_size
max_completion_length max_new_tokens data.max_response_length actor_rollout_ref.rollout.response_length
  generate_max_len max_tokens_to_generate → generation.max_generation_steps
max_length max_seq_length max_model_len vllm_max_model_length
  → generation.max_generation_steps: limits prompt and completion together; ours limits the completion
max_prompt_length actor_rollout_ref.rollout.prompt_length data.max_prompt_length prompt_max_len
  rollout_max_prompt_length → generation.max_prompt_length
min_p → generation.min_p
data.filter_overlong_prompts data.truncation → generation.over_long: drop or refuse; prompts are never cut
temperature actor_rollout_ref.rollout.temperature → generation.temperature
top_k → generation.top_k
top_p → generation.top_p
scale_rewards → grpo.advantage_scaling
algorithm.norm_adv_by_std_in_grpo → grpo.advantage_scaling: false is none
algorithm.adv_estimator advantage_estimator → grpo.advantage_scaling: grpo=rloo and others choose a whole algorithm
beta actor_rollout_ref.actor.kl_loss_coef init_kl_coef kl_coef → grpo.beta
actor_rollout_ref.actor.use_kl_loss algorithm.kl_ctrl.kl_coef algorithm.use_kl_in_reward
  → grpo.beta: the KL divergence is a term of the loss, not of the reward
algorithm.filter_groups.enable dynamic_filtering dynamic_sample
  → grpo.dynamic_sampling_rounds: above 0 groups without an advantage are replaced
algorithm.filter_groups.max_num_gen_batches max_resample_times → grpo.dynamic_sampling_rounds: without the first batch
actor_rollout_ref.actor.entropy_coeff entropy_loss_coef → grpo.entropy_coefficient
epsilon epsilon_low actor_rollout_ref.actor.clip_ratio actor_rollout_ref.actor.clip_ratio_low eps_clip → grpo.epsilon
delta actor_rollout_ref.actor.clip_ratio_c → grpo.epsilon_c
epsilon_high actor_rollout_ref.actor.clip_ratio_high → grpo.epsilon_high
eps_clip_low_high → grpo.epsilon_high: and grpo.epsilon, the lower one
algorithm.filter_groups.metric → grpo.filter_by: a component of the reward; null: the total
actor_rollout_ref.actor.kl_loss_type kl_loss_mode → grpo.kl_estimator
loss_algo → grpo.loss
loss_type actor_rollout_ref.actor.policy_loss.loss_mode rlhf_type
  → grpo.loss: grpo=dr_grpo, dapo, gspo and others choose a whole algorithm
importance_sampling_level → grpo.loss: grpo=gspo is sequence
actor_rollout_ref.actor.loss_agg_mode → grpo.loss_agg_mode
mask_truncated_completions overlong_filter → grpo.mask_truncated
num_generations actor_rollout_ref.rollout.n group_size rollouts_per_example n_samples_per_prompt → grpo.num_generations
replay_buffer_size → grpo.replay_groups
num_iterations actor_rollout_ref.actor.ppo_epochs → grpo.num_iterations
max_epochs → grpo.num_iterations: passes over the completions of a step
off_policy_mask_threshold → grpo.off_policy_threshold
ref_model_mixup_alpha → grpo.reference_sync_mix
ref_model_sync_steps → grpo.reference_sync_steps
sync_ref_model → grpo.reference_sync_steps: above 0 the reference follows the policy
vllm_importance_sampling_correction algorithm.rollout_correction.rollout_is algorithm.rollout_correction.rollout_rs
  → grpo.sampler_correction
vllm_importance_sampling_mode
  → grpo.sampler_correction: token and sequence truncate; icepop masks tokens and sequence_mask completions
vllm_importance_sampling_cap vllm_importance_sampling_clip_max algorithm.rollout_correction.rollout_is_threshold
  → grpo.sampler_correction_cap
vllm_importance_sampling_clip_min → grpo.sampler_correction_floor
sapo_temperature_neg actor_rollout_ref.actor.tau_neg → grpo.tau_negative
sapo_temperature_pos actor_rollout_ref.actor.tau_pos → grpo.tau_positive
top_entropy_quantile → grpo.top_entropy_share
output_dir trainer.experiment_name trainer.default_local_dir → hydra.run.dir
save_path → hydra.run.dir: agent-tunix export writes the weights
bf16 torch_dtype fp16 → model.dtype
lora_alpha peft_config.lora_alpha actor_rollout_ref.model.lora_alpha → model.lora_alpha
lora_target_modules → model.lora_module_path
peft_config.target_modules target_modules actor_rollout_ref.model.target_modules
  → model.lora_module_path: a regular expression for names of modules
lora_r peft_config.r lora_config.r max_lora_rank actor_rollout_ref.model.lora_rank → model.lora_rank
peft_config use_peft train_type tuner_type → model.lora_rank: above 0 the run trains an adapter
trainer.n_gpus_per_node → model.mesh_shape
vllm_tensor_parallel_size tensor_parallel_size deepspeed fsdp fsdp_config
  actor_rollout_ref.rollout.tensor_model_parallel_size zero_stage actor_num_gpus_per_node
  → model.mesh_shape: [data,fsdp,tp] divides the work over all devices
trainer.nnodes actor_num_nodes → model.mesh_shape: counts the devices of all machines; docs/launching.md has recipes
model_name_or_path actor_rollout_ref.model.path pretrain → model.path
load_in_8bit → model.quantization: model.quantization=int8
load_in_4bit → model.quantization: model.quantization=nf4
gradient_checkpointing actor_rollout_ref.model.enable_gradient_checkpointing → model.remat
adam_beta1 → optimizer.beta1
adam_beta2 → optimizer.beta2
adam_epsilon → optimizer.epsilon
optim → optimizer.kind
learning_rate lr actor_rollout_ref.actor.optim.lr actor_learning_rate → optimizer.learning_rate
max_grad_norm actor_rollout_ref.actor.grad_clip max_norm → optimizer.max_grad_norm
warmup_ratio actor_rollout_ref.actor.optim.lr_warmup_steps_ratio lr_warmup_ratio → optimizer.warmup_ratio
warmup_steps actor_rollout_ref.actor.optim.lr_warmup_steps → optimizer.warmup_steps
weight_decay actor_rollout_ref.actor.optim.weight_decay l2 → optimizer.weight_decay
run_name trainer.project_name wandb_run_name → project_name
chat_template_path → prompt.chat_template
system_prompt → prompt.system
chat_template_kwargs → prompt.template_args
enable_thinking → prompt.template_args: prompt.template_args.enable_thinking=true
reward_weights → reward.components: a component has a weight: {function: …, weight: …}
trainer.rollout_data_dir → rollouts.share: the run's directory holds this share of its completions
lr_scheduler_type lr_scheduler → scheduler.kind
metric_for_best_model → stopping.metric
load_best_model_at_end → stopping.metric: checkpoints/best is kept
greater_is_better → stopping.mode
early_stopping_patience → stopping.patience
num_completions_to_print trainer.log_val_generations → tracking.num_samples
disable_tqdm → tracking.progress: none shows no progress
use_tensorboard → tracking.tensorboard
report_to trainer.logger → tracking.tensorboard: also wandb_disabled=false and tracking.mlflow=true
actor_rollout_ref.actor.ppo_mini_batch_size → training.batch_size: an update takes the whole batch
generation_batch_size → training.batch_size: counts completions; ours counts prompts, so divide by grpo.num_generations
data.train_batch_size rollout_batch_size mini_batch_size → training.batch_size: counts prompts, as ours does
train_batch_size → training.batch_size: in OpenRLHF it counts completions, in verl prompts as here
ckpt_path checkpoint_root_directory → training.checkpoint_dir
eval_steps trainer.test_freq eval_every_n_steps → training.eval_every_n_steps
trainer.val_before_train → training.eval_every_n_steps: a run that evaluates does so before its first step too
eval_strategy evaluation_strategy → training.eval_every_n_steps: steps between evaluations
logging_steps logging_strategy → training.flush_every_n_steps: every step is logged
gradient_accumulation_steps → training.gradient_accumulation_steps
logging_dir → training.log_dir
log_completions → training.log_rewards
save_total_limit trainer.max_actor_ckpt_to_keep max_ckpt_num → training.max_checkpoints_to_keep
per_device_train_batch_size actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu micro_train_batch_size
  → training.micro_batch_size: counts completions of a device; multiply by the devices, divide by grpo.num_generations
train_micro_batch_size → training.micro_batch_size: counts prompts, as ours does
actor_rollout_ref.actor.ppo_max_token_len_per_gpu → training.micro_batch_size: counts tokens; ours counts prompts
trainer.total_training_steps
  → training.num_batches: counts batches of prompts of all epochs; ours counts those of one epoch
max_samples → training.num_batches: counts rows; ours counts batches of prompts
max_steps → training.num_batches: counts updates of all epochs; ours counts batches of prompts of one epoch
num_train_epochs trainer.total_epochs num_episodes → training.num_epochs
trainer.resume_mode → training.resume
resume_from_checkpoint load_checkpoint → training.resume: training.resume=true with the run's hydra.run.dir
reward_funcs → training.reward_function
remote_rm_url → training.reward_function: a file with reward_func; a server is not called
reward_model reward_pretrain → training.reward_function: the reward reward_model, with args.path
external_plugins → training.reward_function: training.reward_function=file.py:Class; rewards.modules imports files
custom_reward_function.path custom_reward_function.name reward_model.reward_manager
  → training.reward_function: training.reward_function=file.py:function
save_steps trainer.save_freq → training.save_interval_steps
save_strategy → training.save_interval_steps: steps between checkpoints
eval_dataset data.val_files val_dataset → training.test_data_dir
split_dataset_ratio → training.train_fraction: the share to train on, not the one to hold out
use_wandb → wandb_disabled: wandb_disabled=false
"""
    ).items()
    for key, _, remark in [text.partition(":")]
}

# Names without a key here → the reason. `*` stands for any ending.
WITHOUT_KEY = _read(
    """
actor_rollout_ref.rollout.name actor_rollout_ref.rollout.mode use_vllm gpu_memory_utilization colocate_all_models
  sleep_level fast_inference vllm_* sglang_*
  → the package has its own sampler on the devices of the run; `agent-tunix plan` shows its memory
steps_per_generation → every update takes a whole batch; grpo.num_iterations repeats updates on its completions
attn_implementation attn_impl flash_attn use_flash_attn torch_compile enforce_eager use_liger_kernel
  cache_implementation trust_remote_code tf32 → the model is written in JAX and compiled by XLA
packing packing_samples padding_free use_remove_padding use_dynamic_bsz group_by_length
  → batches have fixed shapes, which XLA needs
gamma lambd lam critic_warmup critic_learning_rate freezing_actor_steps critic_*
  → GRPO has no critic: the advantage of a completion is that within its group
lora_dropout use_rslora use_dora modules_to_save task_type
  → adapters are plain LoRA: model.lora_rank, model.lora_alpha and model.lora_module_path
push_to_hub hub_model_id hub_token hub_strategy hub_*
  → `agent-tunix export RUN --push OWNER/NAME` uploads the weights after the run
dataset_num_proc preprocessing_num_workers dataloader_* → rows are prepared while the devices work
repetition_penalty → sampling has only temperature, top_p, top_k and min_p
generation_kwargs → the keys of `generation` are all that sampling has
processing_class → the tokenizer is that of model.path
callbacks → agent_tunix.train(callbacks=…) in Python; a run has trackers (docs/metrics.md) and stopping.metric
apply_chat_template → prompts are always rendered by the chat template: prompt.chat_template
remove_unused_columns → a reward can use every column of the data
ulysses_sequence_parallel_size sequence_parallel_size context_parallel_size
  → sequences are not divided over devices; model.mesh_shape divides rows and weights
"""
)

# Short last names, such as `path`, are too ambiguous, and so is `enable`.
_BY_LAST_NAME = {
    leaf: name for name in OTHER_NAMES if "." in name and len(leaf := name.rpartition(".")[2]) > 4 and leaf != "enable"
}


def suggest_key(key: str, schema: type) -> str:
    """Return `; did you mean training.batch_size?` for an unknown key of a configuration, or "".

    Names of other libraries come first, then keys with the same last name in other groups, then similar spellings.
    If a name of theirs has no equivalent here, the text gives the reason instead.
    """
    known = [*_keys_of(schema), "hydra.run.dir", "hydra.sweep.dir"]
    leaf = key.rpartition(".")[2]
    if key in known:
        return ""
    if (reason := reason_without_key(key)) is not None:
        return f"; it has no counterpart here: {reason}"
    name = next((name for name in (key, leaf, _BY_LAST_NAME.get(leaf)) if name in OTHER_NAMES), None)
    if name is not None and OTHER_NAMES[name][0] in known:
        equivalent, remark = OTHER_NAMES[name]
        return f"; did you mean {equivalent}?" + (f" ({leaf}: {remark})" if remark else "")
    near = [name for name in known if name.rpartition(".")[2] == leaf] or difflib.get_close_matches(key, known, n=1)
    if not near:
        leaves = {name.rpartition(".")[2]: name for name in known}
        near = [leaves[name] for name in difflib.get_close_matches(leaf, leaves, n=1)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _keys_of(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the groups and dotted keys of a schema."""
    for field in dataclasses.fields(schema):
        yield prefix + field.name
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            yield from _keys_of(field.type, f"{prefix}{field.name}.")


def reason_without_key(name: str) -> str | None:
    """Return the reason why another library's setting has no key here; None if it has one, or is not known."""
    *groups, leaf = name.split(".")
    if "critic" in groups:
        return WITHOUT_KEY["critic_*"]
    if name in OTHER_NAMES or leaf in OTHER_NAMES:
        return None
    beginnings = (start for start in WITHOUT_KEY if start.endswith("*") and leaf.startswith(start[:-1]))
    return WITHOUT_KEY.get(name, WITHOUT_KEY.get(leaf, WITHOUT_KEY.get(next(beginnings, ""))))
