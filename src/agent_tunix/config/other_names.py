"""Names of settings in TRL, verl and Tunix, with the equivalent keys of this package.

Sources: `GRPOConfig` of TRL 1.16 and its base, `TrainingArguments` of transformers; the PPO configuration of verl 0.9;
`GRPOConfig` and `RolloutConfig` of Tunix 0.1.7.
"""

_COMPLETIONS = "counts completions; ours counts prompts, so divide by grpo.num_generations"
_PROMPTS = "counts prompts, as ours does"
_STEPS = "counts updates; ours counts batches of prompts an epoch"

# Name → key, or key and a remark on the difference. Names with dots are verl's.
OTHER_NAMES: dict[str, str | tuple[str, str]] = {
    # TRL and transformers
    "model_name_or_path": "model.path",
    "reward_funcs": "training.reward_function",
    "reward_weights": ("reward.components", "a component has a weight: {function: …, weight: …}"),
    "tools": "environment.tools",
    "environment_factory": "environment.name",
    "max_tool_calling_iterations": ("environment.max_turns", "the last turn, without a call, counts too"),
    "max_completion_length": "generation.max_generation_steps",
    "max_prompt_length": "generation.max_prompt_length",
    "num_generations": "grpo.num_generations",
    "temperature": "generation.temperature",
    "top_p": "generation.top_p",
    "top_k": "generation.top_k",
    "min_p": "generation.min_p",
    "beta": "grpo.beta",
    "epsilon": "grpo.epsilon",
    "epsilon_low": "grpo.epsilon",
    "epsilon_high": "grpo.epsilon_high",
    "delta": "grpo.epsilon_c",
    "num_iterations": "grpo.num_iterations",
    "sapo_temperature_pos": "grpo.tau_positive",
    "sapo_temperature_neg": "grpo.tau_negative",
    "loss_type": ("grpo.loss", "grpo=dr_grpo, dapo, gspo and so on choose a whole algorithm"),
    "importance_sampling_level": ("grpo.loss", "grpo=gspo is sequence"),
    "scale_rewards": ("grpo.advantage_scaling", "group, batch or none"),
    "top_entropy_quantile": "grpo.top_entropy_share",
    "off_policy_mask_threshold": "grpo.off_policy_threshold",
    "vllm_importance_sampling_correction": ("grpo.sampler_correction", "token or sequence"),
    "vllm_importance_sampling_cap": "grpo.sampler_correction_cap",
    "mask_truncated_completions": "grpo.mask_truncated",
    "sync_ref_model": ("grpo.reference_sync_steps", "above 0 the reference follows the policy"),
    "ref_model_sync_steps": "grpo.reference_sync_steps",
    "ref_model_mixup_alpha": ("grpo.reference_sync_mix", "the policy's share"),
    "per_device_train_batch_size": ("training.micro_batch_size", _COMPLETIONS),
    "generation_batch_size": ("training.batch_size", _COMPLETIONS),
    "per_device_eval_batch_size": "evaluation.batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "max_steps": ("training.num_batches", _STEPS),
    "num_train_epochs": "training.num_epochs",
    "learning_rate": "optimizer.learning_rate",
    "lr_scheduler_type": "scheduler.kind",
    "lr": "optimizer.learning_rate",
    "warmup_ratio": "optimizer.warmup_ratio",
    "warmup_steps": "optimizer.warmup_steps",
    "weight_decay": "optimizer.weight_decay",
    "max_grad_norm": "optimizer.max_grad_norm",
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "adam_epsilon": "optimizer.epsilon",
    "optim": "optimizer.kind",
    "bf16": ("model.dtype", "model.dtype=bfloat16"),
    "torch_dtype": "model.dtype",
    "gradient_checkpointing": "model.remat",
    "lora_r": "model.lora_rank",
    "lora_alpha": "model.lora_alpha",
    "lora_target_modules": "model.lora_module_path",
    "load_in_4bit": ("model.quantization", "model.quantization=nf4"),
    "output_dir": "hydra.run.dir",
    "logging_dir": "training.log_dir",
    "logging_steps": ("training.flush_every_n_steps", "every step is logged"),
    "log_completions": "training.log_rewards",
    "report_to": ("tracking.tensorboard", "also wandb_disabled=false and tracking.mlflow=true"),
    "run_name": "project_name",
    "save_steps": "training.save_interval_steps",
    "save_total_limit": "training.max_checkpoints_to_keep",
    "eval_steps": "training.eval_every_n_steps",
    "resume_from_checkpoint": ("training.resume", "training.resume=true with the run's hydra.run.dir"),
    "load_best_model_at_end": ("stopping.metric", "checkpoints/best is kept"),
    "metric_for_best_model": "stopping.metric",
    "greater_is_better": ("stopping.mode", "max or min"),
    "early_stopping_patience": "stopping.patience",
    "dataset_name": "data.path",
    "dataset_config": "data.subset",
    "dataset_train_split": "data.train_split",
    "shuffle_dataset": "data.shuffle",
    "chat_template_path": "prompt.chat_template",
    # verl
    "actor_rollout_ref.rollout.n": "grpo.num_generations",
    "actor_rollout_ref.model.path": "model.path",
    "actor_rollout_ref.model.lora_rank": "model.lora_rank",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "model.remat",
    "actor_rollout_ref.actor.optim.lr": "optimizer.learning_rate",
    "actor_rollout_ref.actor.ppo_epochs": "grpo.num_iterations",
    "actor_rollout_ref.actor.clip_ratio": "grpo.epsilon",
    "actor_rollout_ref.actor.clip_ratio_high": "grpo.epsilon_high",
    "actor_rollout_ref.actor.clip_ratio_c": "grpo.epsilon_c",
    "actor_rollout_ref.actor.kl_loss_coef": "grpo.beta",
    "actor_rollout_ref.actor.entropy_coeff": "grpo.entropy_coefficient",
    "actor_rollout_ref.actor.kl_loss_type": "grpo.kl_estimator",
    "actor_rollout_ref.actor.ppo_mini_batch_size": ("training.batch_size", "an update takes the whole batch"),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": ("training.micro_batch_size", _COMPLETIONS),
    "actor_rollout_ref.actor.loss_agg_mode": "grpo.loss_agg_mode",
    "actor_rollout_ref.actor.tau_pos": "grpo.tau_positive",
    "actor_rollout_ref.actor.tau_neg": "grpo.tau_negative",
    "algorithm.adv_estimator": ("grpo.advantage_scaling", "grpo=rloo and others choose a whole algorithm"),
    "algorithm.norm_adv_by_std_in_grpo": ("grpo.advantage_scaling", "false is none"),
    "algorithm.filter_groups.metric": ("grpo.filter_by", "a component of the reward; null: the total"),
    "algorithm.filter_groups.max_num_gen_batches": ("grpo.dynamic_sampling_rounds", "without the first batch"),
    "data.train_files": "data.path",
    "data.val_files": "training.test_data_dir",
    "data.train_batch_size": ("training.batch_size", _PROMPTS),
    "data.max_response_length": "generation.max_generation_steps",
    "data.prompt_key": "data.prompt_column",
    "trainer.total_epochs": "training.num_epochs",
    "trainer.total_training_steps": ("training.num_batches", _STEPS),
    "trainer.test_freq": "training.eval_every_n_steps",
    "trainer.save_freq": "training.save_interval_steps",
    "trainer.resume_mode": "training.resume",
    "trainer.project_name": "project_name",
    "trainer.experiment_name": "hydra.run.dir",
    "trainer.default_local_dir": "hydra.run.dir",
    "trainer.n_gpus_per_node": "model.mesh_shape",
    "custom_reward_function.path": ("training.reward_function", "training.reward_function=file.py:function"),
    "custom_reward_function.name": ("training.reward_function", "training.reward_function=file.py:function"),
    # Tunix
    "max_tokens_to_generate": "generation.max_generation_steps",
    "kv_cache_size": "generation.cache_size",
    "kl_loss_mode": "grpo.kl_estimator",
    "advantage_estimator": ("grpo.advantage_scaling", "grpo=rloo and others choose a whole algorithm"),
    "eval_every_n_steps": "training.eval_every_n_steps",
    "checkpoint_root_directory": "training.checkpoint_dir",
    "mini_batch_size": ("training.batch_size", _PROMPTS),
    "train_micro_batch_size": ("training.micro_batch_size", _PROMPTS),
    "rollout_max_prompt_length": "generation.max_prompt_length",
    "loss_algo": "grpo.loss",
}
# Name → why there is no such key.
WITHOUT_KEY = {
    "steps_per_generation": "every update takes a whole batch; grpo.num_iterations repeats updates on its completions",
    "use_vllm": "the package has its own sampler",
}
# Short last names, such as `path`, are too ambiguous.
_BY_LAST_NAME = {leaf: name for name in OTHER_NAMES if "." in name and len(leaf := name.rpartition(".")[2]) > 4}


def key_of_other_name(written: str) -> tuple[str, str] | None:
    """Return the key for another library's setting, and a remark or ""; None for an unknown name.

    Args:
        written: A name such as `max_steps`, with or without a group.
    """
    leaf = written.rpartition(".")[2]
    name = next((one for one in (written, leaf, _BY_LAST_NAME.get(leaf)) if one in OTHER_NAMES), None)
    if name is None:
        return None
    found = OTHER_NAMES[name]
    return (found, "") if isinstance(found, str) else found
