"""Schema of the configuration: a dataclass for each group, a field for each key.

Keys, types, defaults, units and reasons are defined only here. Hydra composes `conf/*` over the schema, so a wrong type
or an unknown key is refused; the configuration reference in the docs is generated from it; the rest of the program sees
only these typed values. Importing it loads no Hydra, OmegaConf or JAX.

The help of a field is its `metadata["help"]`, written with `key(...)`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any


def key(default: Any, help_text: str) -> Any:
    """Return a dataclass field with a default and its help text."""
    if isinstance(default, list | dict):
        template = default
        return dataclasses.field(default_factory=lambda: type(template)(template), metadata={"help": help_text})
    return dataclasses.field(default=default, metadata={"help": help_text})


@dataclass
class ModelConfig:
    """The policy to train, and which of its weights."""

    model_family: str | None = key(
        None, "Family that `config.json` must be of: gemma2, gemma3, llama, qwen2 or qwen3; null: any of them."
    )
    model_size: str = key("tiny", "Name of the size, for logs and reports.")
    path: str | None = key(
        None,
        "A Hugging Face model directory (config.json, *.safetensors, tokenizer.json), or a model of a hub:"
        " hf://owner/name[@revision], kaggle://owner/model/framework/variation[/version], gs://bucket/directory; null:"
        " the embedded model.",
    )
    lora_rank: int = key(0, "Rank of the LoRA adapter; 0 trains all weights.")
    lora_alpha: float = key(16.0, "LoRA scale; the adapter's output is multiplied by alpha / rank.")
    lora_module_path: str | None = key(
        None,
        "Regular expression of the projections that get an adapter, which the whole of a name must match, as"
        " `.*self_attn.*`; null: all of attention and MLP.",
    )
    quantization: str | None = key(
        None,
        "QLoRA: the projections of the frozen base are kept in int8 (8.5 bits a weight) or nf4 (4.5 bits); null: in the"
        " compute type. Needs an adapter.",
    )
    mesh_shape: Any = key(
        "auto",
        "Devices along the axes of the mesh, [fsdp,tp] or [data,fsdp,tp]; auto: all devices, as the model, the memory"
        " and the batch allow.",
    )
    dtype: str = key("auto", "Compute type: float32, bfloat16, or auto (float32 on CPU, bfloat16 elsewhere).")
    remat: bool = key(False, "Recompute activations in the backward pass: less memory, about a third more time.")


@dataclass
class CurriculumConfig:
    """A curriculum: easy rows first, harder ones later."""

    column: str | None = key(
        None, "Column that says how hard a row is: a number, or a value of `order`; null: no curriculum."
    )
    kind: str = key(
        "baby_steps",
        "baby_steps: each stage adds harder rows to those before; one_pass: each stage has only rows of its own.",
    )
    stages: int = key(4, "Stages, of equal length; the rows are divided among them equally, the easiest first.")
    until: float = key(1.0, "Share of the run over which the stages extend, in (0, 1]; after it all rows are drawn.")
    order: list[Any] = key([], "The column's values from easy to hard, where they are no numbers.")


@dataclass
class DataConfig:
    """The source of prompts and reference answers."""

    name: str | None = key(None, "Name of the dataset, for reports; null: that of its files, or word_problems.")
    source: str = key(
        "auto",
        "synthetic: problems made by code; jsonl, csv, parquet: files; huggingface, tfds, kaggle: datasets of these"
        " hubs; auto: what the suffix or the beginning (hf://, tfds://, kaggle://) of `path` says, and synthetic"
        " without a path.",
    )
    path: str | None = key(
        None,
        "Files: a directory with train.* and test.*, one file, or a pattern such as `rows/part-*.parquet`. A dataset"
        " of a hub: owner/name (huggingface, kaggle), or a name of TensorFlow Datasets.",
    )
    subset: str | None = key(None, "huggingface, tfds: the part (configuration) of the dataset; null: its only one.")
    revision: str | None = key(
        None, "huggingface: branch, tag or commit; tfds, kaggle: version; null: the latest, which the run then keeps."
    )
    train_split: str = key("train", "Name of the training rows: in a directory, the files that begin with it.")
    test_split: str = key("test", "Name of the held-out rows: in a directory, the files that begin with it.")
    prompt_column: str = key(
        "question", "Column with the problem put to the model: text, or a conversation of chat messages."
    )
    answer_column: str | None = key(
        "answer",
        "Column with the reference; of GSM8K's `solution #### answer` the answer is what follows ####; null: none.",
    )
    answer_mark: str = key(
        "auto",
        "Whether answers are written `solution #### answer`: none, always, or auto, as at least half of the first 100.",
    )
    columns: dict[str, str] = key({}, "New name → old name of columns that are renamed as the rows are read.")
    num_train: int = key(4096, "synthetic: how many training problems are made.")
    num_test: int = key(500, "synthetic: how many held-out problems are made.")
    seed: int = key(0, "synthetic: which problems are made; shuffling follows the run's `seed`, not this one.")
    shuffle: bool = key(True, "Shuffle the training rows anew in each epoch, by the run's seed.")
    max_row_bytes: int = key(65536, "A longer row is dropped, counted and reported with its line number.")
    streaming: bool = key(
        False, "Read training rows as steps need them, for sets larger than memory; needs training.num_batches."
    )
    shuffle_buffer: int = key(10_000, "streaming: rows held in memory, among which the next one is drawn.")
    mixture: dict[str, Any] = key(
        {}, "Name → {weight, and the keys of this group in which the set differs}; empty: one set, this group's own."
    )
    curriculum: CurriculumConfig = dataclasses.field(default_factory=CurriculumConfig)


@dataclass
class PromptConfig:
    """The text that the model sees for a problem."""

    system: str | None = key(
        None, "System message; null: none. A conversation that has a system message of its own keeps that."
    )
    without_system_role: str = key(
        "fold",
        "Where the chat template has no place for a system message: `fold` it into the user's first message, or"
        " `refuse` to run.",
    )
    format: str = key(
        "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>",
        "The template a response should follow; handed to rewards as `format`, and scored by the format rewards."
        " Worked examples are written in it.",
    )
    template: str | None = key(
        None,
        "The user's message, with columns of the row in braces: `{question} Answer with a number.`; `{prompt}` is the"
        " problem, `{{` a brace. null: the problem alone.",
    )
    few_shot: list[dict[str, Any]] = key(
        [],
        "Worked examples shown before the question, each {prompt, answer}; with `solution`, the response is"
        " prompt.format filled; with `response`, it is that.",
    )
    num_few_shot: int = key(
        0, "So many more are drawn from the training rows by the run's seed, and left out of training and evaluation."
    )
    chat_template: str | None = key(
        None, "A Jinja text, or the path of a .jinja file, in place of the model's own chat template; null: its own."
    )
    template_args: dict[str, Any] = key(
        {"enable_thinking": False},
        "Further variables of the chat template: `prompt.template_args.enable_thinking=true`.",
    )
    date: str = key(
        "2024-07-26",
        "What a chat template takes for today, YYYY-MM-DD: Llama 3's writes it into the prompt. Fixed, so that a prompt"
        " is the same on every day.",
    )


@dataclass
class RewardsConfig:
    """The way in which any rewards are found and run."""

    modules: list[str] = key([], "Modules or files imported first, so that their registrations are seen.")
    args: dict[str, Any] = key({}, "Arguments by reward name: `rewards.args.conciseness.limit=80`.")
    max_failure_rate: float = key(
        0.5, "Share of a step's completions that may go unscored before the run stops with a checkpoint, 0 to 1."
    )
    on_failure: str = key(
        "exclude", "An unscored completion is excluded from its group, or counted as `zero`, or makes the run `raise`."
    )
    execution: str = key(
        "auto",
        "Where rewards run: inline, process (isolated workers), ray (workers of a Ray cluster; extra `ray`), or auto:"
        " built-ins inline and your own code in workers.",
    )
    timeout_s: float = key(10.0, "Wall time a call may take for each completion it scores; then it is ended.")
    memory_mb: int = key(2048, "What a worker may allocate beyond what it holds once its rewards are loaded.")
    num_workers: int | None = key(None, "Worker processes; null: one for each core.")
    max_concurrency: int = key(64, "Calls of an async reward that run at once.")
    recycle_after: int = key(10_000, "A worker is replaced after so many calls.")
    start_timeout_s: float = key(60.0, "Wall time that loading a reward's file in a worker may take.")
    allow_unsandboxed: bool = key(
        False,
        "Whether uploaded rewards run without isolation on a machine that cannot isolate them, with everything that you"
        " can read and do.",
    )
    convention: str = key(
        "auto",
        "What a reward is whose signature does not tell: plain, trl, miles or environment; auto: it is refused.",
    )
    completions: str = key(
        "auto",
        "Batch functions get completions as text or as messages; auto: tried before training, text if it can be.",
    )
    reward_key: str | None = key(None, "The entry of the dict that is the reward, for miles functions that return one.")
    on_change: str = key(
        "warn", "Resuming with another reward than the checkpoint's: `warn` of what changed, or `refuse` to go on."
    )


@dataclass
class RewardGroupConfig:
    """A reward made of named components (a file of `conf/reward/`); if empty, `training.reward_function` decides."""

    components: dict[str, Any] = key(
        {},
        "Component name → {function, args, weight (default 1.0; a schedule), requires, transform, when, cost}."
        " Weight 0 is tracked and never trains.",
    )


@dataclass
class OptimizerConfig:
    """The optimiser, the learning rate, and groups of weights with settings of their own.

    A key whose default is null belongs to some optimisers only. Null stands for the default of the chosen optimiser;
    any other value is refused if the optimiser does not read the key.
    """

    kind: str = key("adamw", "adamw, adafactor, lion, muon or sgd.")
    learning_rate: float = key(1e-4, "Peak learning rate, reached after the warm-up.")
    beta1: float | None = key(None, "adamw, lion, muon: decay of the first moment, 0 ≤ beta1 < 1; null: 0.9.")
    beta2: float | None = key(
        None, "adamw, muon: decay of the second moment; lion: of its momentum; 0 ≤ beta2 < 1; null: 0.99."
    )
    epsilon: float | None = key(
        None,
        "Added to what a gradient is divided by, so that rounding noise makes no steps: adamw, muon (null: 1e-8),"
        " adafactor (added to the squared gradient; null: 1e-30).",
    )
    momentum: float | None = key(
        None, "muon (null: 0.95), sgd (null: 0.9), adafactor (null: 0, which keeps no momentum); 0 ≤ momentum < 1."
    )
    nesterov: bool | None = key(None, "muon (null: true), sgd (null: false): look ahead by the momentum.")
    decay_rate: float | None = key(
        None, "adafactor: its second moment decays by 1 - t^-decay_rate at update t; above 0, null: 0.8."
    )
    scale_by_weights: bool | None = key(
        None,
        "adafactor: a learning rate relative to the size of each weight matrix; null: false, one that is absolute.",
    )
    weight_decay: float = key(0.0, "Decoupled weight decay: this times the learning rate is taken off each weight.")
    decay_vectors: bool = key(False, "Weight decay also on vectors, which are norms and biases.")
    warmup_ratio: float = key(0.1, "Share of all updates over which the learning rate rises from 0, 0 to 1.")
    warmup_steps: int | None = key(None, "Steps over which it rises, fewer than the run has; null: warmup_ratio.")
    max_grad_norm: float = key(1.0, "Gradients are scaled down to this global norm; 0 switches clipping off.")
    groups: dict[str, Any] = key(
        {},
        "Weights apart, by name: {match, learning_rate or learning_rate_scale, weight_decay, freeze}. `match` is a"
        " regular expression found in the weight's path, such as layers.0.self_attn.q_proj.kernel; the first group that"
        " matches has it.",
    )


@dataclass
class SchedulerConfig:
    """The learning rate after the warm-up. Keys with the default null work as in `optimizer`."""

    kind: str = key("cosine", "cosine, linear, constant, wsd (warm-up, stable, decay) or inverse_sqrt.")
    final_ratio: float | None = key(
        None,
        "What the learning rate falls to after the last update, as a share of the peak, 0 to 1: cosine (null: 0.1),"
        " linear and wsd (null: 0).",
    )
    decay_ratio: float | None = key(None, "wsd: share of all updates in the final decay, 0 to 1; null: 0.2.")
    decay_shape: str | None = key(None, "wsd: linear, cosine or sqrt (1 - √x); null: linear.")


@dataclass
class GrpoConfig:
    """Group relative policy optimisation (https://arxiv.org/abs/2402.03300) and variants; see the page *Algorithms*."""

    num_generations: int = key(8, "G: completions sampled for each prompt; at least 2.")
    num_iterations: int = key(1, "μ: updates on each batch of completions; with 1 every importance ratio is 1.")
    loss: str = key(
        "grpo",
        "grpo: ratios of tokens, clipped; gspo: ratios of whole completions, clipped; gspo_token: these, token by"
        " token; reinforce: neither ratio nor clip (RLOO).",
    )
    loss_agg_mode: str = key(
        "sequence-mean-token-mean",
        "How token losses become one: sequence-mean-token-mean; token-mean (DAPO); sequence-mean-token-sum (RLOO);"
        " sequence-mean-token-sum-norm, the sum divided by max_generation_steps (Dr. GRPO).",
    )
    advantage_scaling: str = key(
        "group",
        "What divides an advantage: the std of its `group`, or of the `batch`; `none` (Dr. GRPO); `leave_one_out`, the"
        " others' mean as the baseline (RLOO); `component` standardises each component on its own (GDPO).",
    )
    epsilon: float = key(0.2, "ε: the importance ratio is clipped to [1 - ε, 1 + ε].")
    epsilon_high: float | None = key(None, "Upper clip on its own (DAPO's clip-higher); null: ε.")
    epsilon_c: float | None = key(
        None, "Dual clip: with a negative advantage ratios count up to this, 3 as a rule; null: without bound."
    )
    beta: float = key(0.02, "β: weight of the KL penalty against the reference policy; 0 drops the reference.")
    kl_estimator: str = key(
        "low_var_kl", "low_var_kl (k3) or mse_kl (k2); k1 is refused, its expected gradient as a loss is zero."
    )
    reference_sync_steps: int = key(
        0, "The reference policy moves towards the policy every so many steps; 0: it stays what training began with."
    )
    reference_sync_mix: float = key(
        0.6, "α: how far it moves, π_ref ← α π + (1 - α) π_ref; 1 copies the policy, and is needed with an adapter."
    )
    mask_truncated: bool = key(
        False, "Completions cut at the length limit take no part in the loss; they do in their group's baseline."
    )
    dynamic_sampling_rounds: int = key(
        0, "At most so many more batches of prompts a step, to replace groups whose rewards are all equal (DAPO)."
    )


@dataclass
class GenerationConfig:
    """Sampling of completions in training."""

    max_prompt_length: int = key(64, "Longest prompt, in tokens; prompts are padded to it on the left.")
    max_generation_steps: int = key(32, "Longest completion, in tokens.")
    temperature: float = key(1.0, "Sampling temperature, above 0; the loss uses the same one.")
    top_p: float = key(1.0, "Nucleus: the smallest set of tokens with this probability, in (0, 1].")
    top_k: int | None = key(None, "Only the k likeliest tokens; null: all.")
    min_p: float = key(
        0.0, "Only tokens with at least this share of the likeliest token's probability, in [0, 1); 0: all."
    )
    eos_tokens: list[int] | None = key(None, "Token ids that end a completion; null: the tokenizer's own.")
    cache_size: int | None = key(None, "Slots of the key-value cache; null: prompt + generation. Less is refused.")
    over_long: str = key("drop", "A prompt over max_prompt_length is dropped and counted, or refused: drop, refuse.")


@dataclass
class TrainingConfig:
    """The run: its reward, length, batches and outputs."""

    reward_function: Any = key(
        "math",
        "Which reward trains: a name, a dotted path, file.py:function, rf_… or the name of an uploaded one, a list, or"
        " a mapping of components.",
    )
    batch_size: int = key(16, "Prompts a step; divisible by micro_batch_size.")
    micro_batch_size: int | None = key(None, "Prompts a forward and backward pass; null: the whole batch.")
    gradient_accumulation_steps: int | None = key(
        None, "Micro-batches an update; null: batch_size / micro_batch_size. Given, it must agree."
    )
    num_batches: int | None = key(60, "Batches of prompts an epoch; null: as many as the data gives.")
    num_epochs: int = key(1, "Passes over those batches.")
    num_test_batches: int | None = key(
        None, "At most this many batches in an evaluation; null: evaluation.num_samples."
    )
    train_fraction: float = key(1.0, "Share of the training rows that train; the others become the evaluation set.")
    eval_every_n_steps: int = key(30, "Evaluate every so many steps, besides before and after; 0: only then.")
    save_interval_steps: int = key(20, "Checkpoint every so many steps, besides the last; 0: only then.")
    max_checkpoints_to_keep: int = key(2, "Older checkpoints are removed.")
    checkpoint_dir: str | None = key(None, "Where checkpoints go; null: checkpoints/ in the run's directory.")
    log_dir: str | None = key(None, "Where TensorBoard events go; null: tensorboard/ in the run's directory.")
    flush_every_n_steps: int = key(10, "TensorBoard events reach the disk every so many steps.")
    resume: bool = key(False, "Go on from the last whole checkpoint of the run's directory; afresh if there is none.")
    init_checkpoint: str | None = key(
        None,
        "A run, as RUN, RUN:STEP or RUN:best, with whose weights policy and reference begin; null: those of the model.",
    )
    train_data_dir: str | None = key(None, "Directory or files of the training rows; null: data.path.")
    test_data_dir: str | None = key(None, "Directory or files of the held-out rows; null: data.path.")
    data_source: str | None = key(None, "Overrides data.source.")
    log_reward_stats: bool = key(
        True,
        "Log variances, percentiles, histograms, what each component did to the advantages, and why groups are dead;"
        " false leaves the mean, std, min and max.",
    )
    log_rewards: bool = key(False, "Log a table of every step's completions with their scores.")
    save_reward_analysis: bool = key(
        False,
        "Write reward_analysis.json (what earned high and low rewards, variance, skew, failures), curves.csv, plots/.",
    )
    log_level: str = key("info", "debug (a trace of how each score came about), info, warning or error.")
    wandb_project: str | None = key(None, "Weights & Biases project; null: project_name.")


@dataclass
class SftConfig:
    """Targets of `agent-tunix sft`; everything else is as in any run."""

    target_column: str | None = key(
        None,
        "Column that holds what should follow the prompt; null: `prompt.format` filled with the worked solution and the"
        " answer.",
    )
    max_target_length: int | None = key(
        None, "Longest target, in tokens; a row with a longer one is left out. null: generation.max_generation_steps."
    )


@dataclass
class StoppingConfig:
    """The choice of the best checkpoint, and early stopping."""

    metric: str | None = key(
        None, "A metric of metrics.jsonl, such as eval/accuracy or rewards/oracle/mean; null: no step is the best."
    )
    mode: str = key("max", "max: more is better; min: less is.")
    min_delta: float = key(0.0, "A smaller gain over the best counts as none.")
    patience: int | None = key(
        None, "The run ends after so many evaluations without a gain; null: it takes all its steps."
    )


@dataclass
class EvaluationConfig:
    """Accuracy and reward on held-out problems."""

    num_samples: int = key(500, "Problems an evaluation, at most; 0: the run does not evaluate.")
    batch_size: int = key(128, "Problems generated at once.")
    inference_config: str = key("greedy", "greedy, standard or liberal: the sampling of an evaluation.")
    num_passes: int = key(1, "Samples a problem; above 1 gives pass@k and consistency.")
    correct: str = key(
        "math",
        "The reward that decides eval/accuracy: math, answer_correctness, multiple_choice, exact_match or code_tests;"
        " reward: the run's own; or another that training.reward_function can name.",
    )
    correct_at: float = key(1.0, "A completion is correct if `correct` gives it at least this score.")
    with_rewards: bool | None = key(
        None,
        "true: the run's own reward scores the completions too, as eval/rewards/…; null: where `correct` can use none"
        " of the references, or is the run's own reward.",
    )


@dataclass
class DistributedConfig:
    """The devices and processes of the run, and the cache of compiled programs."""

    mode: str = key(
        "none",
        "none (one process), auto (TPU pods, GKE, and whatever else JAX detects), slurm, mpi or manual: how the"
        " processes of the run find each other.",
    )
    coordinator_address: str | None = key(
        None, "HOST:PORT where process 0 listens; required by manual, else null: detected."
    )
    num_processes: int | None = key(None, "Processes of the run; required by manual, else null: detected.")
    process_id: int | None = key(
        None, "Number of this process, from 0, another in each; required by manual, else null: detected."
    )
    local_device_ids: list[int] | None = key(
        None, "Accelerators of the machine that this process uses; null: all, or one under Slurm and MPI."
    )
    initialization_timeout_s: int = key(300, "Seconds within which all processes must have come together.")
    heartbeat_timeout_s: int = key(100, "A process that nothing is heard of for so many seconds is given up as lost.")
    platform: str = key("auto", "auto (JAX chooses), cpu, gpu or tpu.")
    compilation_cache: str | None = key(
        "auto",
        "Directory of compiled programs, which make the next start fast: at most 1 GiB for each kind of processor;"
        " auto: the user's cache; null: none.",
    )
    num_cpu_devices: int | None = key(None, "Virtual CPU devices, to try a mesh without accelerators; null: 1.")


@dataclass
class TrackingConfig:
    """Outputs of metrics besides metrics.jsonl, which is always written."""

    tensorboard: bool = key(True, "Write TensorBoard events.")
    progress: str = key("auto", "auto (live on a terminal, else plain lines), live, plain or none.")
    histogram_bins: int = key(10, "Bins of the reward histograms.")
    sample_every_n_steps: int = key(
        10, "Show completions in TensorBoard and Weights & Biases at step 1 and every so many steps; 0: never."
    )
    num_samples: int = key(4, "How many of a step are shown then: the best half and the worst half; 0: none.")
    mlflow: bool = key(False, "Send metrics, the configuration and the report to MLflow (extra `mlflow`).")
    mlflow_uri: str | None = key(
        None, "MLflow's store; null: MLFLOW_TRACKING_URI, or else sqlite:///mlflow.db in the working directory."
    )
    report: bool = key(True, "Draw report.html as the run ends.")
    profile_steps: list[int] = key(
        [3, 5], "With profile=true, the first and the last step that is traced; past the run's end, its last step."
    )


@dataclass
class RolloutsConfig:
    """Storage of completions, in `rollouts/` of the run's directory."""

    share: float = key(1.0, "Share of groups whose completions are stored, 0 to 1; a group is stored whole or not.")
    max_file_mb: float = key(64.0, "A file of rollouts is closed at this size, and with each checkpoint.")


@dataclass
class Config:
    """A whole run."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    prompt: PromptConfig = dataclasses.field(default_factory=PromptConfig)
    rewards: RewardsConfig = dataclasses.field(default_factory=RewardsConfig)
    reward: RewardGroupConfig = dataclasses.field(default_factory=RewardGroupConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    grpo: GrpoConfig = dataclasses.field(default_factory=GrpoConfig)
    generation: GenerationConfig = dataclasses.field(default_factory=GenerationConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    sft: SftConfig = dataclasses.field(default_factory=SftConfig)
    stopping: StoppingConfig = dataclasses.field(default_factory=StoppingConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    distributed: DistributedConfig = dataclasses.field(default_factory=DistributedConfig)
    tracking: TrackingConfig = dataclasses.field(default_factory=TrackingConfig)
    rollouts: RolloutsConfig = dataclasses.field(default_factory=RolloutsConfig)
    seed: int = key(0, "Every random choice of the run follows from it.")
    project_name: str = key("agent_tunix", "First part of the run's directory; name of the project in trackers.")
    wandb_disabled: bool = key(True, "False sends metrics to Weights & Biases (extra `wandb`).")
    profile: bool = key(
        False, "Trace the steps of tracking.profile_steps into profile/ of the run's directory, for ui.perfetto.dev."
    )


@dataclass
class EvaluateConfig:
    """Settings of `evaluate.py`; everything else comes from the run's own config.yaml."""

    checkpoint_dir: str | None = key(None, "The directory of a run, or its checkpoints/.")
    step: Any = key(
        None, "Which checkpoint: its step; best, by stopping.metric; null: the latest whole one; 0: before training."
    )
    inference_config: str = key(
        "greedy", "greedy, standard or liberal: (temperature, top-k, top-p) 1e-4/1/1.0, 0.7/50/0.95, 0.85/2000/1.0."
    )
    num_passes: int = key(1, "Samples a problem; above 1 gives pass@k and consistency.")
    num_samples: int | None = key(None, "Problems, at most; null: as many as the run's own evaluations.")
    correct: str | None = key(
        None, "The reward that decides eval/accuracy, as evaluation.correct; null: that of the run's own evaluations."
    )
    correct_at: float | None = key(None, "The least score of a correct completion; null: that of the run.")
    compare_with: str | None = key(
        None, "The directory of another run, or of this one, whose checkpoint answers the same problems."
    )
    compare_step: Any = key(None, "Which checkpoint of compare_with, as `step` says it.")
    with_rewards: bool = key(False, "Whether the run's own reward scores the completions too.")
    trust: bool = key(
        False, "Use what a run that somebody else made names: its reward's code, judges and files. Remembered."
    )
    output: str | None = key(
        None, "The JSON file to write, with a .jsonl of the problems beside it; null: in the run's directory."
    )
    model: dict[str, Any] = key(
        {},
        "Values of `model` that replace the run's; model.path=DIR without checkpoint_dir measures that model as it is.",
    )
    data: dict[str, Any] = key({}, "Values of `data` that replace the run's, as in data.path=DIR.")
    prompt: dict[str, Any] = key({}, "Values of `prompt` that replace the run's.")
    generation: dict[str, Any] = key({}, "Values of `generation` that replace the run's.")
