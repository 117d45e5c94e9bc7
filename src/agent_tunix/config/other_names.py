"""Names of settings in other libraries, with the equivalent keys of this package.

Sources: `GRPOConfig` of TRL 1.16 and its base, `TrainingArguments` of transformers, and PEFT's `LoraConfig`; the PPO
configuration of verl 0.9; the arguments of OpenRLHF's `train_ppo_ray`; the GRPO arguments of ms-swift; `GRPOConfig` and
`RolloutConfig` of Tunix 0.1.7.
"""

_COMPLETIONS = "counts completions; ours counts prompts, so divide by grpo.num_generations"
_OF_A_DEVICE = (
    "counts the completions of a device; ours counts prompts on all devices, so multiply by the devices and divide by"
    " grpo.num_generations; training.batch_size is that times training.gradient_accumulation_steps"
)
_PROMPTS = "counts prompts, as ours does"
_STEPS = "counts updates of all epochs; ours counts batches of prompts an epoch, each with grpo.num_iterations updates"
_BATCHES = "counts batches of prompts of all epochs; ours counts those of one epoch"
_SUM = "limits prompt and completion together; the sum of generation.max_prompt_length and this key is that limit"
_MESH = "[data,fsdp,tp] divides the work over all devices"

# Name → key, or key and a remark on the difference. Names with dots are verl's, or those of an object.
OTHER_NAMES: dict[str, str | tuple[str, str]] = {
    # TRL and transformers
    "model_name_or_path": "model.path",
    "reward_funcs": "training.reward_function",
    "reward_weights": ("reward.components", "a component has a weight: {function: …, weight: …}"),
    "tools": "environment.tools",
    "environment_factory": "environment.name",
    "max_tool_calling_iterations": ("environment.max_turns", "the last turn, without a call, counts too"),
    "max_completion_length": "generation.max_generation_steps",
    "max_new_tokens": "generation.max_generation_steps",
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
    "per_device_train_batch_size": ("training.micro_batch_size", _OF_A_DEVICE),
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
    "dataset": ("data.path", "a file, a directory or hf://OWNER/NAME; data=gsm8k and others choose a prepared one"),
    "train_dataset": "data.path",
    "eval_dataset": "training.test_data_dir",
    "dataset_test_split": "data.test_split",
    "dataset_streaming": "data.streaming",
    "data_seed": "data.seed",
    "eval_strategy": ("training.eval_every_n_steps", "steps between evaluations"),
    "evaluation_strategy": ("training.eval_every_n_steps", "steps between evaluations"),
    "save_strategy": ("training.save_interval_steps", "steps between checkpoints"),
    "logging_strategy": ("training.flush_every_n_steps", "every step is logged"),
    "disable_tqdm": ("tracking.progress", "none shows no progress"),
    "num_completions_to_print": "tracking.num_samples",
    "peft_config": ("model.lora_rank", "above 0 the run trains an adapter; model.lora_alpha, model.lora_module_path"),
    "peft_config.r": "model.lora_rank",
    "peft_config.lora_alpha": "model.lora_alpha",
    "peft_config.target_modules": ("model.lora_module_path", "a regular expression for names of modules"),
    "lora_config.r": "model.lora_rank",
    "target_modules": ("model.lora_module_path", "a regular expression for names of modules"),
    "max_lora_rank": "model.lora_rank",
    "use_peft": ("model.lora_rank", "above 0 the run trains an adapter"),
    "load_in_8bit": ("model.quantization", "model.quantization=int8"),
    "fp16": ("model.dtype", "float32 or bfloat16"),
    "max_length": ("generation.max_generation_steps", _SUM),
    "max_seq_length": ("generation.max_generation_steps", _SUM),
    "max_model_len": ("generation.max_generation_steps", _SUM),
    "vllm_max_model_length": ("generation.max_generation_steps", _SUM),
    "vllm_tensor_parallel_size": ("model.mesh_shape", _MESH),
    "tensor_parallel_size": ("model.mesh_shape", _MESH),
    "deepspeed": ("model.mesh_shape", _MESH),
    "fsdp": ("model.mesh_shape", _MESH),
    "fsdp_config": ("model.mesh_shape", _MESH),
    "system_prompt": "prompt.system",
    "chat_template_kwargs": "prompt.template_args",
    "enable_thinking": ("prompt.template_args", "prompt.template_args.enable_thinking=true"),
    "rollout_func": ("environment.name", "an environment decides the turns of a rollout"),
    "reward_model": ("training.reward_function", "the reward reward_model, with args.path"),
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
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": ("training.micro_batch_size", _OF_A_DEVICE),
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
    "trainer.total_training_steps": ("training.num_batches", _BATCHES),
    "trainer.test_freq": "training.eval_every_n_steps",
    "trainer.save_freq": "training.save_interval_steps",
    "trainer.resume_mode": "training.resume",
    "trainer.project_name": "project_name",
    "trainer.experiment_name": "hydra.run.dir",
    "trainer.default_local_dir": "hydra.run.dir",
    "trainer.n_gpus_per_node": "model.mesh_shape",
    "custom_reward_function.path": ("training.reward_function", "training.reward_function=file.py:function"),
    "custom_reward_function.name": ("training.reward_function", "training.reward_function=file.py:function"),
    "actor_rollout_ref.model.lora_alpha": "model.lora_alpha",
    "actor_rollout_ref.model.target_modules": ("model.lora_module_path", "a regular expression for names of modules"),
    "actor_rollout_ref.actor.use_kl_loss": ("grpo.beta", "above 0 the KL divergence is a term of the loss"),
    "actor_rollout_ref.actor.clip_ratio_low": "grpo.epsilon",
    "actor_rollout_ref.actor.grad_clip": "optimizer.max_grad_norm",
    "actor_rollout_ref.actor.policy_loss.loss_mode": ("grpo.loss", "grpo=gspo and others choose a whole algorithm"),
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "optimizer.warmup_steps",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "optimizer.warmup_ratio",
    "actor_rollout_ref.actor.optim.weight_decay": "optimizer.weight_decay",
    "actor_rollout_ref.rollout.temperature": "generation.temperature",
    "actor_rollout_ref.rollout.prompt_length": "generation.max_prompt_length",
    "actor_rollout_ref.rollout.response_length": "generation.max_generation_steps",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": ("model.mesh_shape", _MESH),
    "actor_rollout_ref.rollout.multi_turn.enable": ("environment.name", "an environment makes episodes of turns"),
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": "environment.max_turns",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path": "environment.tools",
    "actor_rollout_ref.rollout.val_kwargs.temperature": ("evaluation.inference_config", "greedy, standard or liberal"),
    "algorithm.kl_ctrl.kl_coef": ("grpo.beta", "the KL divergence is a term of the loss, not of the reward"),
    "algorithm.use_kl_in_reward": ("grpo.beta", "the KL divergence is a term of the loss, not of the reward"),
    "algorithm.filter_groups.enable": (
        "grpo.dynamic_sampling_rounds",
        "above 0 groups without an advantage are replaced",
    ),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": (
        "training.micro_batch_size",
        "counts tokens; ours counts prompts",
    ),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": ("training.micro_batch_size", _OF_A_DEVICE),
    "data.max_prompt_length": "generation.max_prompt_length",
    "data.val_batch_size": "evaluation.batch_size",
    "data.filter_overlong_prompts": ("generation.over_long", "drop or refuse"),
    "data.truncation": ("generation.over_long", "drop or refuse; prompts are never cut"),
    "trainer.nnodes": ("model.mesh_shape", "counts the devices of all machines; docs/launching.md has recipes"),
    "trainer.logger": ("tracking.tensorboard", "also wandb_disabled=false and tracking.mlflow=true"),
    "trainer.max_actor_ckpt_to_keep": "training.max_checkpoints_to_keep",
    "trainer.val_before_train": (
        "training.eval_every_n_steps",
        "a run that evaluates does so before its first step too",
    ),
    "trainer.rollout_data_dir": ("rollouts.share", "the run's directory holds this share of its completions"),
    "trainer.log_val_generations": "tracking.num_samples",
    "reward_model.reward_manager": ("training.reward_function", "training.reward_function=file.py:function"),
    # SkyRL and verifiers
    "group_size": "grpo.num_generations",
    "rollouts_per_example": "grpo.num_generations",
    # OpenRLHF
    "pretrain": "model.path",
    "prompt_data": "data.path",
    "input_key": "data.prompt_column",
    "label_key": "data.answer_column",
    "reward_pretrain": ("training.reward_function", "the reward reward_model, with args.path"),
    "remote_rm_url": ("training.reward_function", "a file with reward_func; a server is not called"),
    "agent_func_path": "environment.name",
    "n_samples_per_prompt": "grpo.num_generations",
    "rollout_batch_size": ("training.batch_size", _PROMPTS),
    "train_batch_size": ("training.batch_size", "in OpenRLHF it counts completions, in verl prompts as here"),
    "micro_train_batch_size": ("training.micro_batch_size", _OF_A_DEVICE),
    "max_epochs": ("grpo.num_iterations", "passes over the completions of a step"),
    "num_episodes": "training.num_epochs",
    "max_samples": ("training.num_batches", "counts rows; ours counts batches of prompts"),
    "prompt_max_len": "generation.max_prompt_length",
    "generate_max_len": "generation.max_generation_steps",
    "init_kl_coef": "grpo.beta",
    "kl_coef": "grpo.beta",
    "eps_clip": "grpo.epsilon",
    "eps_clip_low_high": ("grpo.epsilon_high", "and grpo.epsilon, the lower one"),
    "entropy_loss_coef": "grpo.entropy_coefficient",
    "actor_learning_rate": "optimizer.learning_rate",
    "lr_warmup_ratio": "optimizer.warmup_ratio",
    "lr_scheduler": "scheduler.kind",
    "l2": "optimizer.weight_decay",
    "max_norm": "optimizer.max_grad_norm",
    "zero_stage": ("model.mesh_shape", _MESH),
    "actor_num_nodes": ("model.mesh_shape", "counts the devices of all machines; docs/launching.md has recipes"),
    "actor_num_gpus_per_node": ("model.mesh_shape", _MESH),
    "dynamic_filtering": ("grpo.dynamic_sampling_rounds", "above 0 groups without an advantage are replaced"),
    "save_path": ("hydra.run.dir", "agent-tunix export writes the weights"),
    "ckpt_path": "training.checkpoint_dir",
    "load_checkpoint": ("training.resume", "training.resume=true with the run's hydra.run.dir"),
    "max_ckpt_num": "training.max_checkpoints_to_keep",
    "use_wandb": ("wandb_disabled", "wandb_disabled=false"),
    "use_tensorboard": "tracking.tensorboard",
    "wandb_run_name": "project_name",
    # ms-swift
    "rlhf_type": ("grpo.loss", "grpo=dapo, gspo and so on choose a whole algorithm"),
    "train_type": ("model.lora_rank", "above 0 the run trains an adapter"),
    "tuner_type": ("model.lora_rank", "above 0 the run trains an adapter"),
    "val_dataset": "training.test_data_dir",
    "split_dataset_ratio": ("training.train_fraction", "the share to train on, not the one to hold out"),
    "external_plugins": (
        "training.reward_function",
        "training.reward_function=file.py:Class; rewards.modules imports files",
    ),
    "multi_turn_scheduler": "environment.name",
    "dynamic_sample": ("grpo.dynamic_sampling_rounds", "above 0 groups without an advantage are replaced"),
    "max_resample_times": ("grpo.dynamic_sampling_rounds", "without the first batch"),
    "overlong_filter": "grpo.mask_truncated",
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
_OWN_SAMPLER = (
    "the package has its own sampler on the devices of the run; `agent-tunix plan` shows the memory that a run takes,"
    " which training.micro_batch_size and the lengths change"
)
_COMPILED = "the model is written in JAX and compiled by XLA"
_PADDED = "batches have fixed shapes, which XLA needs"
_NO_CRITIC = "GRPO has no critic: the advantage of a completion is that within its group"
_PEFT = "adapters are plain LoRA: model.lora_rank, model.lora_alpha and model.lora_module_path"
_EXPORT = "`agent-tunix export RUN --push OWNER/NAME` uploads the weights after the run"
_PREPARED = "rows are prepared while the devices work"

# Name → why there is no such key.
WITHOUT_KEY = {
    "actor_rollout_ref.rollout.name": _OWN_SAMPLER,
    "actor_rollout_ref.rollout.mode": _OWN_SAMPLER,
    "steps_per_generation": "every update takes a whole batch; grpo.num_iterations repeats updates on its completions",
    **dict.fromkeys(
        ("use_vllm", "gpu_memory_utilization", "colocate_all_models", "sleep_level", "fast_inference"), _OWN_SAMPLER
    ),
    **dict.fromkeys(
        ("attn_implementation", "attn_impl", "flash_attn", "use_flash_attn", "torch_compile", "enforce_eager"),
        _COMPILED,
    ),
    **dict.fromkeys(("use_liger_kernel", "cache_implementation", "trust_remote_code", "tf32"), _COMPILED),
    **dict.fromkeys(
        ("packing", "packing_samples", "padding_free", "use_remove_padding", "use_dynamic_bsz", "group_by_length"),
        _PADDED,
    ),
    **dict.fromkeys(
        ("gamma", "lambd", "lam", "critic_warmup", "critic_learning_rate", "freezing_actor_steps"), _NO_CRITIC
    ),
    **dict.fromkeys(("lora_dropout", "use_rslora", "use_dora", "modules_to_save", "task_type"), _PEFT),
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_token", "hub_strategy"), _EXPORT),
    **dict.fromkeys(("dataset_num_proc", "preprocessing_num_workers"), _PREPARED),
    "repetition_penalty": "sampling has only temperature, top_p, top_k and min_p",
    "generation_kwargs": "the keys of `generation` are all that sampling has",
    "processing_class": "the tokenizer is that of model.path",
    "callbacks": "a run has trackers (docs/metrics.md), stopping.metric and hydra's callbacks instead",
    "apply_chat_template": "prompts are always rendered by the chat template: prompt.chat_template",
    "remove_unused_columns": "a reward can use every column of the data",
    **dict.fromkeys(
        ("ulysses_sequence_parallel_size", "sequence_parallel_size", "context_parallel_size"),
        "sequences are not divided over devices; model.mesh_shape divides rows and weights",
    ),
}
# Beginnings of names that have no such key, with the reason.
WITHOUT_KEY_BY_BEGINNING = {
    "vllm_": _OWN_SAMPLER,
    "sglang_": _OWN_SAMPLER,
    "dataloader_": _PREPARED,
    "critic_": _NO_CRITIC,
    "hub_": _EXPORT,
}
# Short last names, such as `path`, are too ambiguous, and so is `enable`.
_BY_LAST_NAME = {
    leaf: name for name in OTHER_NAMES if "." in name and len(leaf := name.rpartition(".")[2]) > 4 and leaf != "enable"
}


def key_of_other_name(written: str) -> tuple[str, str] | None:
    """Return the key for another library's setting, and a remark or ""; None for an unknown name.

    Args:
        written: A name such as `max_steps`, with or without a group.
    """
    leaf = written.rpartition(".")[2]
    if reason_without_key(written):
        return None
    name = next((one for one in (written, leaf, _BY_LAST_NAME.get(leaf)) if one in OTHER_NAMES), None)
    if name is None:
        return None
    found = OTHER_NAMES[name]
    return (found, "") if isinstance(found, str) else found


def reason_without_key(written: str) -> str | None:
    """Return the reason why another library's setting has no key here; None if it has one, or is not known."""
    *groups, leaf = written.split(".")
    if "critic" in groups:
        return _NO_CRITIC
    if written in OTHER_NAMES or leaf in OTHER_NAMES:
        return None
    found = WITHOUT_KEY.get(written, WITHOUT_KEY.get(leaf))
    return found or next((reason for start, reason in WITHOUT_KEY_BY_BEGINNING.items() if leaf.startswith(start)), None)
