"""Schema of the configuration: a dataclass for each group, a field for each key.

Keys, types, defaults, ranges, choices, units and reasons are defined only here. Hydra composes `conf/*` over the
schema, so a wrong type or an unknown key is refused; the configuration reference in the docs is generated from it; the
rest of the program sees only these typed values. Importing it loads no Hydra, OmegaConf or JAX.

The annotation of a field has its range or its choices. Its help is `metadata["help"]`, written with `key(...)`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from agent_tunix.config.limits import Bounds, OneOf
from agent_tunix.own_functions import POLICY_LOSSES

Natural = Annotated[int, Bounds(ge=0)]
Count = Annotated[int, Bounds(ge=1)]
Finite = Annotated[float, Bounds(gt=-math.inf, lt=math.inf)]
NonNegative = Annotated[float, Bounds(ge=0, lt=math.inf)]
Positive = Annotated[float, Bounds(gt=0, lt=math.inf)]
Share = Annotated[float, Bounds(ge=0, le=1)]
PositiveShare = Annotated[float, Bounds(gt=0, le=1)]
ShareBelowOne = Annotated[float, Bounds(ge=0, lt=1)]
Seconds = Annotated[float, Bounds(gt=0, le=86_400)]

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

# Keys that each optimiser and schedule reads, with their defaults. Such a key is null until the user sets it.
OPTIMIZERS: Mapping[str, Mapping[str, float | bool | str]] = {
    "adamw": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    "adafactor": {"decay_rate": 0.8, "epsilon": 1e-30, "momentum": 0.0, "scale_by_weights": False},
    "lion": {"beta1": 0.9, "beta2": 0.99},
    "muon": {"momentum": 0.95, "nesterov": True, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    "sgd": {"momentum": 0.9, "nesterov": False},
}
SCHEDULES: Mapping[str, Mapping[str, float | bool | str]] = {
    "cosine": {"final_ratio": 0.1},
    "linear": {"final_ratio": 0.0},
    "constant": {},
    "wsd": {"final_ratio": 0.0, "decay_ratio": 0.2, "decay_shape": "linear"},
    "inverse_sqrt": {},
}


def key(default: Any, help_text: str, *, advice: str = "") -> Any:
    """Return a dataclass field with a default, its help text, and advice for a value outside its range."""
    metadata = {"help": help_text, "advice": advice}
    if isinstance(default, list | dict):
        template = default
        return dataclasses.field(default_factory=lambda: type(template)(template), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass
class ModelConfig:
    """The policy to train, and the weights that train."""

    model_family: str | None = key(
        None,
        "Family that `config.json` must have: gemma2, gemma3, gemma4, llama, olmo3, qwen2, qwen3, qwen3_5, qwen3_moe "
        "or smollm3; null: any.",
    )
    model_size: str = key("tiny", "Name of the size, for logs and reports.")
    path: str | None = key(
        None,
        "A Hugging Face model directory (config.json, *.safetensors, tokenizer.json), or a model on a hub:"
        " hf://owner/name[@revision], kaggle://owner/model/framework/variation[/version], gs://bucket/directory; or"
        " an embedded model: embedded:tiny_qwen3 (the same as null) or embedded:tiny_tools.",
    )
    lora_rank: Natural = key(0, "Rank of the LoRA adapter; 0 trains all weights.", advice="0 trains all weights")
    lora_alpha: Positive = key(16.0, "LoRA scale; the adapter's output is multiplied by alpha / rank.")
    lora_module_path: str | None = key(
        None,
        "Regular expression for the projections that get an adapter; it must match the whole name, for example "
        "`.*self_attn.*`; null: all projections of attention and MLP, only those of attention in a model with experts.",
    )
    lora_init: Annotated[str, OneOf("he", "peft")] = key(
        "he",
        "First values of LoRA's A: he, uniform within ± sqrt(6 / inputs) as in Tunix; peft: within ± sqrt(1 / inputs),"
        " so that a learning rate means the same as in PEFT.",
    )
    quantization: Annotated[str, OneOf("int8", "nf4")] | None = key(
        None,
        "QLoRA: store the projections of the frozen base as int8 (8.5 bits per weight) or nf4 (4.5 bits); null: in "
        "the compute type. Requires an adapter.",
    )
    mesh_shape: Any = key(
        "auto",
        "Devices along the axes of the mesh, [fsdp,tp] or [data,fsdp,tp]; auto: use as many devices as the model, "
        "the memory and the batch allow.",
    )
    dtype: Annotated[str, OneOf("auto", "float32", "bfloat16")] = key(
        "auto", "Compute type; auto: bfloat16, or float32 on a CPU and on GPUs without bfloat16, such as a T4."
    )
    remat: bool = key(False, "Recompute activations in the backward pass: less memory, about a third more time.")
    from_run: str | None = key(
        None,
        "Run to start from, as RUN, RUN:STEP or RUN:best: its model, adapter, weights, prompts and stop tokens, except "
        "for keys that you set; null: none.",
    )


@dataclass
class CurriculumConfig:
    """A curriculum: easy rows first, harder ones later."""

    column: str | None = key(
        None, "Column with the difficulty of a row: a number, or a value of `order`; null: no curriculum."
    )
    kind: Annotated[str, OneOf("baby_steps", "one_pass")] = key(
        "baby_steps",
        "baby_steps: each stage adds harder rows to those before; one_pass: each stage has only its own rows.",
    )
    stages: Count = key(4, "Number of stages. All have equal length and equally many rows, the easiest first.")
    until: PositiveShare = key(1.0, "Share of the run that the stages cover; afterwards all rows are drawn.")
    order: list[Any] = key([], "Values of the column from easy to hard, if they are not numbers.")


@dataclass
class DataConfig:
    """The source of prompts and reference answers."""

    name: str | None = key(None, "Name of the dataset in reports; null: the name of its files, or `problems`.")
    source: str = key(
        "auto",
        "synthetic: generated problems; jsonl, csv, parquet: files; huggingface, tfds, kaggle: datasets on these "
        "hubs; reasoning_gym: the library's tasks, named in `tasks`; verifiers: the rows of "
        "an installed environment of this library, named in `path`; auto: decided"
        " by the suffix or the prefix (hf://, tfds://, kaggle://) of `path`, and synthetic "
        "without a path.",
    )
    path: str | None = key(
        None,
        "Files: a directory with train.* and test.*, one file, or a pattern such as `rows/part-*.parquet`. A dataset "
        "on a hub: owner/name (huggingface, kaggle), or a name of TensorFlow Datasets.",
    )
    subset: str | None = key(None, "huggingface, tfds: subset (configuration) of the dataset; null: its only one.")
    revision: str | None = key(
        None, "huggingface: branch, tag or commit; tfds, kaggle: version; null: the latest, which the run then pins."
    )
    train_split: str = key("train", "Name of the training split; in a directory, files with this prefix.")
    test_split: str = key("test", "Name of the held-out split; in a directory, files with this prefix.")
    prompt_column: str = key(
        "question",
        "Column with the problem: text, or a conversation of chat messages. A dotted name means a nested column.",
    )
    answer_column: str | None = key(
        "answer",
        "Column with the reference, nested ones by dotted names: `reward_model.ground_truth`. In GSM8K's form "
        "`solution #### answer` the reference is the text after ####. null: none.",
    )
    answer_mark: Annotated[str, OneOf("auto", "none", "always")] = key(
        "auto",
        "Whether answers have the form `solution #### answer`: none, always, or auto (if at least half of the first "
        "100 do).",
    )
    columns: dict[str, str] = key(
        {}, "New name → old name of columns to rename while reading; a dotted old name means a nested column."
    )
    problems: Annotated[str, OneOf("word_problems", "arithmetic", "numbers")] = key(
        "word_problems",
        "synthetic: word_problems (two steps of arithmetic); arithmetic (`What is 47 * 86?`, for a calculator); numbers"
        " (1 to 10, for the environment guess_number).",
    )
    tasks: dict[str, Any] = key(
        {},
        "reasoning_gym: name of a task → {size (training rows, default 500), seed (default data.seed), levels (of the "
        "library's curriculum), and the task's own parameters}.",
    )
    num_train: Count = key(4096, "synthetic, endless environments of verifiers: number of training problems.")
    num_test: Count = key(
        500,
        "synthetic, reasoning_gym: number of held-out problems, of all tasks together; verifiers: most held-out rows of"
        " an environment without rows for evaluation.",
    )
    seed: int = key(0, "synthetic, reasoning_gym: seed of the problems; shuffling uses the run's `seed` instead.")
    shuffle: bool = key(True, "Shuffle the training rows in each epoch, with the run's seed.")
    max_row_bytes: Count = key(
        65536, "Largest row, in bytes. A larger row is dropped, counted and reported with its line number."
    )
    empty_prompts: bool = key(
        False, "Keep rows whose prompt is an empty message, for an environment whose `reset` returns the prompt."
    )
    streaming: bool = key(
        False, "Read training rows as steps need them, for datasets larger than memory. Requires training.num_batches."
    )
    shuffle_buffer: Count = key(10_000, "streaming: rows in memory from which the next one is drawn.")
    mixture: dict[str, Any] = key(
        {},
        "Name → {weight, and the keys of this group that differ for the set}; empty: one set, described by this group.",
    )
    sampling: Annotated[str, OneOf("uniform", "pass_rate")] = key(
        "uniform",
        "uniform: passes over all rows; pass_rate: rows that the policy solves about half of the time come more often.",
    )
    set_shares: Annotated[str, OneOf("fixed", "pass_rate")] = key(
        "fixed",
        "Shares of the sets of data.mixture. fixed: their weights; pass_rate: weight times mean p(1 − p) of a set, for "
        "the pass rate p of each group, so that training moves from easy sets to hard ones.",
    )
    pass_at: float = key(
        1.0,
        "pass_rate: value from which a completion counts as solved: of the total, or of the component grpo.filter_by.",
    )
    curriculum: CurriculumConfig = dataclasses.field(default_factory=CurriculumConfig)


@dataclass
class PromptConfig:
    """The text that the model sees for a problem."""

    system: str | None = key(
        None, "System message; null: none. A conversation that has its own system message keeps it."
    )
    without_system_role: Annotated[str, OneOf("fold", "refuse")] = key(
        "fold",
        "If the chat template has no place for a system message: `fold` it into the user's first message, or "
        "`refuse` to run.",
    )
    format: str = key(
        "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>",
        "Template that a response should follow. Rewards get it as `format`, format rewards score against it, and "
        "worked examples are written in it.",
    )
    template: str | None = key(
        None,
        "The user's message, with columns of the row in braces: `{question} Answer with a number.`; `{prompt}` is "
        "the problem, `{{` is a brace. null: the problem alone.",
    )
    few_shot: list[dict[str, Any]] = key(
        [],
        "Worked examples before the question, each {prompt, answer}; with `solution`, the response is prompt.format "
        "filled in; with `response`, it is that text.",
    )
    num_few_shot: Natural = key(
        0,
        "Number of further worked examples, drawn from the training rows with the run's seed and excluded from "
        "training and evaluation.",
    )
    chat_template: str | None = key(
        None, "Jinja text, or path of a .jinja file, that replaces the model's chat template; null: the model's own."
    )
    template_args: dict[str, Any] = key(
        {"enable_thinking": False},
        "Further variables for the chat template: `prompt.template_args.enable_thinking=true`.",
    )
    date: str = key(
        "2024-07-26",
        "Date that a chat template uses as today, YYYY-MM-DD; Llama 3's writes it into the prompt. It is fixed so "
        "that prompts do not change from day to day.",
    )


@dataclass
class RewardsConfig:
    """Settings to find and run rewards, whichever are chosen."""

    modules: list[str] = key([], "Modules or files to import first, so that the rewards they register are found.")
    args: dict[str, Any] = key({}, "Arguments by reward name: `rewards.args.conciseness.limit=80`.")
    max_failure_rate: Share = key(
        0.5, "Largest share of unscored completions in a step; above it the run stops with a checkpoint."
    )
    on_failure: Annotated[str, OneOf("exclude", "zero", "raise")] = key(
        "exclude", "An unscored completion: `exclude` it from its group, count it as `zero`, or `raise` an error."
    )
    execution: Annotated[str, OneOf("auto", "inline", "process", "ray")] = key(
        "auto",
        "Where rewards run: inline, process (isolated workers), ray (workers of a Ray cluster; extra `ray`), or auto:"
        " built-ins inline, your own code in workers.",
    )
    timeout_s: Seconds = key(
        10.0,
        "Wall time limit of a call per completion that it scores; a call over the limit is stopped.",
        advice="a call without a limit could stall the run; rewards.execution=inline sets no limit",
    )
    memory_mb: Count = key(2048, "Memory that a worker may allocate beyond what it uses after loading its rewards.")
    num_workers: Count | None = key(None, "Worker processes; null: one per core.", advice="null starts one per core")
    max_concurrency: Count = key(64, "Concurrent calls of an async reward.")
    recycle_after: Count = key(10_000, "Number of calls after which a worker is replaced.")
    start_timeout_s: Seconds = key(60.0, "Wall time limit for loading a reward's file in a worker.")
    allow_unsandboxed: bool = key(
        False,
        "Run uploaded rewards without isolation, with all your permissions, on a machine that cannot isolate them.",
    )
    convention: Annotated[str, OneOf("auto", *REWARD_CONVENTIONS)] = key(
        "auto",
        "Convention of a reward whose signature fits it beside others, fits several, or none: plain, trl, miles, "
        "environment, verl, openrlhf, ms_swift, verifiers or benchmax; auto: chosen by the signature alone.",
    )
    completions: Annotated[str, OneOf("auto", "text", "messages")] = key(
        "auto",
        "Form of the completions that functions get: text or messages; auto: decided before training by trial calls "
        "with both. A parameter `response` is always text.",
    )
    reward_key: str | None = key(
        None, "Key of the reward in the dict that a miles, slime or verl function returns; verl: `score` by default."
    )
    on_change: Annotated[str, OneOf("warn", "refuse")] = key(
        "warn",
        "When resuming with a different reward than the checkpoint's: `warn` about the changes, or `refuse` to "
        "continue.",
    )


@dataclass
class RewardGroupConfig:
    """A reward made of named components (a file of `conf/reward/`); if empty, `training.reward_function` decides."""

    components: dict[str, Any] = key(
        {},
        "Component name → {function, args, weight (default 1.0; a schedule), requires, transform, when, cost, kind,"
        " reason}."
        " A component of weight 0 is tracked but does not train.",
    )


@dataclass
class OptimizerConfig:
    """The optimiser, the learning rate, and groups of weights with settings of their own.

    A key whose default is null belongs to some optimisers only. Null stands for the default of the chosen optimiser;
    any other value is refused if the optimiser does not read the key.
    """

    kind: Annotated[str, OneOf(*OPTIMIZERS)] = key("adamw", "The optimiser.")
    learning_rate: NonNegative = key(1e-4, "Peak learning rate, reached after the warm-up.")
    beta1: ShareBelowOne | None = key(None, "adamw, lion, muon: decay of the first moment; null: 0.9.")
    beta2: ShareBelowOne | None = key(
        None, "adamw, muon: decay of the second moment; lion: of its momentum; null: 0.99."
    )
    epsilon: NonNegative | None = key(
        None,
        "Added to the divisor of a gradient, so that rounding noise causes no updates: adamw, muon (null: 1e-8),"
        " adafactor (added to the squared gradient; null: 1e-30).",
    )
    momentum: ShareBelowOne | None = key(None, "muon (null: 0.95), sgd (null: 0.9), adafactor (null: 0, no momentum).")
    nesterov: bool | None = key(None, "muon (null: true), sgd (null: false): Nesterov momentum.")
    decay_rate: Positive | None = key(
        None, "adafactor: the decay of the second moment is 1 - t^-decay_rate at update t; null: 0.8."
    )
    scale_by_weights: bool | None = key(
        None,
        "adafactor: scale the learning rate by the size of each weight matrix; null: false.",
    )
    weight_decay: NonNegative = key(
        0.0, "Decoupled weight decay: each update subtracts this times the learning rate times the weight."
    )
    decay_vectors: bool = key(False, "Apply weight decay to vectors (norms and biases) too.")
    warmup_ratio: Share = key(0.1, "Share of all updates over which the learning rate rises from 0.")
    warmup_steps: Natural | None = key(
        None, "Steps over which the learning rate rises, fewer than the run has; null: use warmup_ratio."
    )
    max_grad_norm: NonNegative = key(1.0, "Gradients are scaled down to this global norm; 0 disables clipping.")
    groups: dict[str, Any] = key(
        {},
        "Parameter groups by name: {match, learning_rate or learning_rate_scale, weight_decay, freeze}. `match` is a "
        "regular expression found in the weight's path, such as layers.0.self_attn.q_proj.kernel; the first group "
        "that matches takes the weight.",
    )


@dataclass
class SchedulerConfig:
    """The learning rate after the warm-up. Keys with the default null work as in `optimizer`."""

    kind: Annotated[str, OneOf(*SCHEDULES)] = key(
        "cosine", "The shape of the learning rate; wsd: warm-up, stable, decay."
    )
    final_ratio: Share | None = key(
        None,
        "Learning rate after the last update, as a share of the peak: cosine (null: 0.1), linear and wsd (null: 0).",
    )
    decay_ratio: Share | None = key(None, "wsd: share of all updates in the final decay; null: 0.2.")
    decay_shape: Annotated[str, OneOf("linear", "cosine", "sqrt")] | None = key(
        None, "wsd: shape of the decay; sqrt is 1 - √x; null: linear."
    )


@dataclass
class GrpoConfig:
    """Group relative policy optimisation (https://arxiv.org/abs/2402.03300) and variants; see the page *Algorithms*."""

    num_generations: Annotated[int, Bounds(ge=2)] = key(
        8,
        "G: completions sampled per prompt.",
        advice="an advantage compares the completions of one prompt",
    )
    num_iterations: Count = key(
        1, "μ: updates on each batch of completions; with 1 the importance ratio of what is not replayed is 1."
    )
    loss: Annotated[str, OneOf(*POLICY_LOSSES, own=True)] = key(
        "grpo",
        "grpo: ratios of tokens, clipped; gspo: ratios of whole completions, clipped; gspo_token: the same with a "
        "gradient per token; cispo: bounded importance weights; sapo: a smooth gate; gmpo: the geometric mean of "
        "clipped ratios; dppo_tv and dppo_kl: masks where the divergence from the sampling policy is large (DPPO); "
        "reinforce: neither ratio nor clip (RLOO); none: rewards are logged and train nothing, with "
        "grpo.teacher; or your own: a registered name, a dotted path or file.py:function.",
    )
    loss_agg_mode: Annotated[
        str,
        OneOf(
            "sequence-mean-token-mean",
            "token-mean",
            "prompt-mean-token-mean",
            "sequence-mean-token-sum",
            "sequence-mean-token-sum-norm",
            "length-weighted-token-sum",
        ),
    ] = key(
        "sequence-mean-token-mean",
        "How token losses are combined: sequence-mean-token-mean; token-mean (DAPO); prompt-mean-token-mean "
        "(ScaleRL); sequence-mean-token-sum (RLOO);"
        " sequence-mean-token-sum-norm, the sum divided by max_generation_steps (Dr. GRPO);"
        " length-weighted-token-sum, long completions weighted down (VL Norm).",
    )
    length_exponent: NonNegative = key(
        1.0,
        "α of length-weighted-token-sum: a completion weighs its length to the power −α; 1: least variance, 0: all "
        "tokens alike.",
    )
    advantage_scaling: Annotated[
        str, OneOf("group", "batch", "batch_centred", "mean", "none", "leave_one_out", "component", own=True)
    ] = key(
        "group",
        "Divisor of the advantages: the std of the `group` or of the `batch`; `batch_centred`: the std of the batch's "
        "rewards less their groups' means (REINFORCE++, ScaleRL); `mean`: that of the group (MaxRL); `none` (Dr. GRPO);"
        " `leave_one_out`: no division, the mean of the others is the baseline (RLOO); `component`: each component is "
        "standardised separately (GDPO); or your own estimator: a registered name, a dotted path or file.py:function.",
    )
    credit: Annotated[str, OneOf("episode", "turn", "gigpo", "hgpo", "role")] = key(
        "episode",
        "Advantage of the turns of an episode. episode: all share that of the total; turn: the discounted return from "
        "the turn on, compared with the group's at the same turn; gigpo: the episode's, plus that of the return among "
        "the group's turns in the same state; hgpo: that of the return among turns with the same last states, "
        "for one and more of them; role: that of the return among the group's turns with the same role of an agent.",
    )
    history_turns: Natural = key(2, "H of hgpo: earlier states that its deepest groups share.")
    discount: PositiveShare = key(
        1.0,
        "γ: factor of a reward for each turn between it and the turn that is credited, unless grpo.credit=episode.",
    )
    step_advantage_weight: NonNegative = key(1.0, "ω of gigpo: weight of the advantage among turns in the same state.")
    anchor_state: Annotated[str, OneOf("observation", "conversation")] = key(
        "observation",
        "State of a turn in gigpo and hgpo. observation: the replies since the turn before; conversation: all "
        "messages.",
    )
    modules: list[str] = key(
        [], "Modules or files to import first, for the losses and advantage estimators that they register."
    )
    epsilon: Annotated[float, Bounds(gt=0, lt=1)] = key(
        0.2,
        "ε: the importance ratio is clipped to [1 - ε, 1 + ε]; in gmpo its logarithm to [-ε, ε]; in dppo_tv and "
        "dppo_kl the largest divergence.",
    )
    epsilon_high: Positive | None = key(None, "Separate upper clip (DAPO's clip-higher); null: ε.")
    epsilon_c: Positive | None = key(
        None, "Dual clip: upper bound of the ratio when the advantage is negative, usually 3; null: no bound."
    )
    tau_positive: Positive = key(1.0, "τ of sapo's gate for positive advantages; a higher one forgets sooner.")
    tau_negative: Positive = key(1.05, "τ of sapo's gate for negative advantages.")
    beta: NonNegative = key(0.02, "β: weight of the KL penalty against the reference policy; 0: no reference policy.")
    kl_estimator: Annotated[str, OneOf("low_var_kl", "mse_kl", "unbiased_kl")] = key(
        "low_var_kl",
        "low_var_kl (k3), mse_kl (k2) or unbiased_kl (k3 weighted by the importance ratio); k1 is an error: its "
        "expected gradient as a loss is zero.",
        advice="the expected gradient of k1 as a loss is zero",
    )
    entropy_coefficient: NonNegative = key(0.0, "Coefficient of the entropy bonus; 0: none.")
    entropy_target: Positive | None = key(
        None,
        "Entropy of the next token, in nats, below which the bonus begins; it reaches entropy_coefficient at an "
        "entropy of 0. null: the bonus is fixed.",
    )
    top_entropy_share: PositiveShare = key(
        1.0, "Share of tokens, those with the highest entropy in a micro-batch, whose policy loss counts; 1: all."
    )
    off_policy_threshold: NonNegative | None = key(
        None,
        "δ: completions with a negative advantage that became less likely by more nats a token than this are masked, "
        "with num_iterations above 1; null: none.",
    )
    positive_nll: NonNegative = key(
        0.0, "Coefficient of the negative log-likelihood of completions with a positive advantage (VAPO: 0.1); 0: none."
    )
    observation_nll: NonNegative = key(
        0.0,
        "Coefficient of the negative log-likelihood of the tokens that tools and environments wrote (ECHO; 0.05 in "
        "rLLM); 0: none.",
    )
    sampler_correction: Annotated[
        str, OneOf("auto", "none", "token", "sequence", "icepop", "sequence_mask", "geometric_mask")
    ] = key(
        "auto",
        "Correction for what sampling and training disagree by. token, sequence: importance weights, truncated; icepop:"
        " tokens outside a band of ratios are masked; sequence_mask: completions; geometric_mask: completions by the "
        "mean ratio of their tokens. With num_iterations above 1 only the masks apply. auto: token where steps are "
        "sampled ahead (engine.max_staleness) and num_iterations is 1, else none.",
    )
    sampler_correction_cap: Positive | None = key(
        None,
        "Upper bound of that correction's ratios; null: 2 for token and sequence, 5 for icepop, 3 for sequence_mask, "
        "1.001 for geometric_mask.",
    )
    sampler_correction_floor: Positive | None = key(
        None,
        "Lower bound of a mask's ratios; null: 0.5 for icepop, none for sequence_mask, 0.999 for geometric_mask.",
    )
    teacher: str | None = key(
        None,
        "Model whose distribution the policy follows on its own completions (on-policy distillation), in the forms of "
        "model.path and with the policy's tokenizer; self: the policy itself, shown teacher_prompt; null: none.",
    )
    teacher_prompt: str | None = key(
        None,
        "The text that the teacher reads in place of the user's last message: a Jinja template, or a .jinja file, of "
        "prompt, the row's columns, answer, worked_solution, response, feedback, solution (a better completion of the "
        "same prompt) and extras. Where it is empty, the teacher does not judge. null: with teacher=self a template of "
        "all of these, else the policy's prompt.",
    )
    teacher_coefficient: Positive = key(1.0, "Weight of the divergence KL(policy ‖ teacher) in the loss.")
    teacher_top_k: Count | None = key(
        None,
        "Compute the divergence over the teacher's k likeliest tokens and the rest together; null: from the sampled "
        "token alone.",
    )
    skip_dead_steps: bool = key(
        True,
        "Change nothing in a step in which no completion has an advantage, unless a teacher, the entropy bonus or a "
        "loss of your own trains there; false: the KL penalty and weight decay act alone.",
    )
    reference_sync_steps: Natural = key(
        0, "Steps between updates of the reference policy towards the policy; 0: it stays at the initial policy."
    )
    reference_sync_mix: PositiveShare = key(
        0.6,
        "α: step size of that update, π_ref ← α π + (1 - α) π_ref; 1 copies the policy and is required with an "
        "adapter.",
    )
    mask_truncated: bool = key(
        False, "Exclude completions cut at the length limit from the loss; they still count in their group's baseline."
    )
    filter_by: str | None = key(
        None,
        "Component of the reward by which dynamic sampling and replay judge groups, and data.sampling=pass_rate or "
        "data.set_shares=pass_rate judge completions as solved; null: the total.",
    )
    dynamic_sampling_rounds: Natural = key(
        0, "Most additional batches of prompts per step that replace groups whose rewards are all equal (DAPO)."
    )
    replay_groups: Natural = key(
        0,
        "Most hard groups that are kept, to train again in the places of groups whose rewards are all equal; 0: none.",
    )
    replay_max_age: Count = key(10, "Steps after which a kept group is not replayed any more.")


@dataclass
class GenerationConfig:
    """Sampling of completions in training."""

    max_prompt_length: Count | None = key(
        None,
        "Longest prompt, in tokens, with tools; prompts are padded to it on the left. null: the longest of the run,"
        " within the model's context.",
    )
    max_generation_steps: Count = key(32, "Longest completion, in tokens.")
    temperature: Positive = key(
        1.0, "Sampling temperature; the loss uses the same value.", advice="0.01 is nearly greedy"
    )
    top_p: PositiveShare = key(
        1.0,
        "Nucleus sampling: draw from the smallest set of tokens with this probability.",
        advice="1 keeps every token",
    )
    top_k: Count | None = key(
        None, "Draw only from the k likeliest tokens; null: all.", advice="null keeps every token"
    )
    min_p: ShareBelowOne = key(
        0.0,
        "Draw only tokens with at least this share of the likeliest token's probability; 0: all.",
        advice="0 keeps every token",
    )
    eos_tokens: list[int] | None = key(None, "Token ids that end a completion, at most 100; null: the tokenizer's own.")
    stop_strings: list[str] = key(
        [], "Strings that end a completion or turn; they stay in its tokens and are removed from its text."
    )
    cache_size: int | None = key(None, "Slots of the key-value cache; null: prompt + generation. Less is an error.")
    over_long: Annotated[str, OneOf("drop", "refuse")] = key(
        "drop", "A prompt that is too long: `drop` and count it, or `refuse` to run."
    )


@dataclass
class EngineConfig:
    """Inference engines that sample in place of this process; see the page *Sample with an engine*."""

    name: Annotated[str, OneOf("none", "vllm", "sglang", "agent_tunix")] = key(
        "none", "Engine that samples in training and evaluation; none: this process."
    )
    urls: list[str] = key([], "URLs of the engines, such as http://a:8000; all serve the same model.")
    adapter_directory: str | None = key(
        None,
        "Directory that this process and the engines see under the same path; versions of the weights are written "
        "there. null: engine/ of the run's directory, for engines on this machine.",
    )
    api_key_variable: str | None = key(None, "Environment variable with the engines' key; null: they need none.")
    max_staleness: Natural = key(
        0,
        "K: steps that are sampled ahead while the policy is updated, with weights that are K updates old. 0: sampling "
        "waits for each update.",
    )
    max_concurrency: Count = key(256, "Requests that a replica gets at a time.")
    timeout_s: Positive = key(600.0, "Seconds that a request may take; it is then sent to another replica.")
    max_retries: Natural = key(5, "Times that a request is sent again after a failure; then the run stops.")
    mismatch_limit: Positive = key(
        10.0,
        "Stop the run where policy/sampler_mismatch_kl exceeds this many times its first value, at least 1e-4: "
        "the engine does not sample from the policy. Without effect with engine.max_staleness and in steps that replay "
        "groups.",
    )
    num_processes: Natural = key(0, "With agent_tunix: sampling processes to start on this machine, in place of urls.")
    devices_per_process: Natural | None = key(
        None,
        "TPU chips or GPUs of each of these processes; the trainer keeps the others. null: equal shares of half of "
        "them. 0: all processes see all devices.",
    )


@dataclass
class AgentConfig:
    """An agent, which drives its episodes itself and calls the policy over HTTP, in place of `environment.name`.

    `environment.agent=FUNCTION` is short for `environment.agent.function=FUNCTION`.
    """

    function: str | None = key(
        None,
        "The agent: file.py:NAME or a dotted path of a function of a row and, if it has a second parameter, a client of"
        " OpenAI's API; or a class of such objects, which gets environment.args. null: none.",
    )
    command: Any = key(
        None,
        "The agent as a command, a text or a list of words. It finds the policy by OPENAI_BASE_URL and OPENAI_API_KEY,"
        " and its row by AGENT_TUNIX_ROW, and may write a result to AGENT_TUNIX_RESULT. null: none.",
    )
    timeout_s: Seconds = key(
        600.0, "Wall time of one rollout, in seconds, the time in which its calls wait for the policy included."
    )
    max_concurrency: Count = key(32, "Most rollouts that run at once.")
    max_calls: Count = key(64, "Most calls of the policy in a rollout; further ones are refused.")
    max_tokens: Count = key(65_536, "Most tokens that the policy writes in a rollout; further calls are refused.")


@dataclass
class EnvironmentConfig:
    """Tools and environments, with which the policy acts over several turns; without them completions have one turn."""

    name: Any = key(
        None,
        "The environment: a registered name, a dotted path, file.py:Class, or a mapping {name: environment} from which"
        " the row's column `environment` chooses; verifiers:NAME: an installed environment of the library verifiers, "
        "which calls the policy itself, with its own rubric as the reward `environment`; null: none.",
    )
    tools: list[str] = key([], "Further tools: registered names, dotted paths or file.py:function.")
    mcp: list[dict[str, Any]] = key(
        [],
        "MCP servers with further tools: items {command, args, env}, where command is a text or list and args and env"
        " are optional, or items {url} (streamable HTTP).",
    )
    agent: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    args: dict[str, Any] = key({}, "Arguments of the environment's constructor, or of an agent's if that is a class.")
    modules: list[str] = key([], "Modules or files to import first, for the names that they register.")
    call_format: Annotated[str, OneOf("auto", "hermes", "qwen_xml", "llama3", "gemma", "olmo3")] = key(
        "auto",
        "Format of tool calls: hermes, qwen_xml, llama3, gemma or olmo3; auto: the one of the chat template. The log"
        " says which format is read, and why.",
    )
    max_turns: Count | None = key(None, "Most turns of the policy; null: what the environment recommends, or else 8.")
    max_turn_tokens: Count | None = key(
        None, "Longest turn of the policy, in tokens; null: generation.max_generation_steps."
    )
    max_episode_tokens: Count = key(
        256, "Longest episode, in tokens: everything after the prompt, tool results included."
    )
    max_result_tokens: Count = key(128, "Longest tool result or reply, in tokens; a longer one is cut, and says so.")
    timeout_s: Seconds = key(10.0, "Wall time of one call of the environment or a tool, in seconds.")
    memory_mb: Count = key(2048, "Memory of a worker process, beyond what the environment takes when it is loaded.")
    num_workers: Count = key(
        16,
        "Worker processes for your own environments and tools, each of which runs one call at a time; also the most"
        " episodes that call an MCP server or the tool python at the same time.",
    )
    execution: Annotated[str, OneOf("auto", "inline", "process")] = key(
        "auto",
        "Where environments and tools run. inline: in the trainer, without limits; process: in worker processes; auto:"
        " built-in ones inline, others in worker processes. MCP servers have processes of their own.",
    )
    schedule: Annotated[str, OneOf("lockstep", "arrival")] = key(
        "lockstep",
        "lockstep: all episodes write a turn, then all wait for the slowest tool; arrival: an episode writes on as soon"
        " as its own tools have answered, at the price that equal runs may differ by rounding.",
    )
    on_tool_error: Annotated[str, OneOf("tell", "fail")] = key(
        "tell", "If a tool raises an error: `tell` the model, or `fail` the episode, which then has no reward."
    )


@dataclass
class TrainingConfig:
    """The run: its reward, length, batches and outputs."""

    reward_function: Any = key(
        "math",
        "The reward: a name, a dotted path, file.py:function, the id (rf_…) or name of an uploaded function, a list, "
        "or a mapping of components.",
    )
    batch_size: Count = key(16, "Prompts per step; must be divisible by micro_batch_size.")
    micro_batch_size: Count | None = key(None, "Prompts per forward and backward pass; null: the whole batch.")
    gradient_accumulation_steps: Count | None = key(
        None, "Micro-batches per update; null: batch_size / micro_batch_size. If set, it must equal that."
    )
    num_batches: Count | None = key(
        60, "Batches of prompts per epoch; null: all rows of the data.", advice="null goes through all rows"
    )
    num_epochs: Count = key(1, "Passes over these batches.")
    num_test_batches: Count | None = key(
        None, "Most batches per evaluation; null: only evaluation.num_samples limits it."
    )
    train_fraction: PositiveShare = key(
        1.0,
        "Share of the training rows to train on; the others become the evaluation set.",
        advice="1 trains on every row",
    )
    eval_every_n_steps: Natural = key(
        30, "Steps between evaluations, besides those before and after training; 0: only these two."
    )
    save_interval_steps: Natural = key(
        20, "Steps between checkpoints, besides the one after the last step; 0: only that one."
    )
    max_checkpoints_to_keep: Count = key(
        2, "Number of checkpoints to keep; older ones are removed.", advice="resuming requires one"
    )
    max_checkpoints_gb: Positive | None = key(
        None,
        "Gigabytes (10^9 bytes) that the checkpoints may take: the oldest ones that are neither the last nor the best "
        "are removed first. null: no limit.",
    )
    checkpoint_dir: str | None = key(None, "Directory of the checkpoints; null: checkpoints/ in the run's directory.")
    log_dir: str | None = key(None, "Directory of the TensorBoard events; null: tensorboard/ in the run's directory.")
    flush_every_n_steps: Count = key(10, "Steps between writes of TensorBoard events to disk.")
    resume: bool = key(
        False,
        "Resume from the last complete checkpoint in the run's directory; start from the beginning if there is none.",
    )
    continue_from: str | None = key(
        None,
        "Directory of another run, which may be read-only, to continue in this run's new directory as if it had not "
        "ended; null: none.",
    )
    max_hours: Positive | None = key(
        None,
        "Hours from the start of the process to the end of the run: it stops after the last step that leaves time for "
        "the evaluation, the checkpoint, the report and an export. null: no limit.",
    )
    lock: bool = key(
        True,
        "Lock the run's directory, so that no other run uses it; false: do not, for a disk without locks. The status "
        "of such a run reads `stopped` while it goes on.",
    )
    init_checkpoint: str | None = key(
        None,
        "Run whose weights initialise policy and reference, as RUN, RUN:STEP or RUN:best; null: the weights of the "
        "model.",
    )
    train_data_dir: str | None = key(None, "Directory or files of the training rows; null: data.path.")
    test_data_dir: str | None = key(None, "Directory or files of the held-out rows; null: data.path.")
    data_source: str | None = key(None, "Overrides data.source.")
    log_reward_stats: bool = key(
        True,
        "Log variances, percentiles, histograms, the effect of each component on the advantages, and why groups are "
        "dead; false: only mean, std, min and max.",
    )
    log_rewards: bool = key(False, "Log a table of every step's completions with their scores.")
    save_reward_analysis: bool = key(
        False,
        "Write reward_analysis.json (completions with high and low rewards, variance, skew, failures), curves.csv "
        "and plots/.",
    )
    log_level: Annotated[str, OneOf("debug", "info", "warning", "error")] = key(
        "info", "Lowest level of messages in the log; debug has a trace of each score."
    )
    wandb_project: str | None = key(None, "Weights & Biases project; null: project_name.")


@dataclass
class SftConfig:
    """Settings of the target texts of `agent-tunix sft`; everything else is as in any run."""

    target_column: str | None = key(
        None,
        "Column with the target text; null: `prompt.format` filled in with the worked solution and the answer.",
    )
    max_target_length: Annotated[int, Bounds(ge=2)] | None = key(
        None, "Longest target, in tokens; rows with longer ones are left out. null: generation.max_generation_steps."
    )


@dataclass
class PreferConfig:
    """Settings of `agent-tunix prefer`, which learns from pairs of responses; everything else is as in any run.

    A key whose default is null takes the default of the chosen loss.
    """

    loss: Annotated[str, OneOf("dpo", "simpo", "ipo")] = key("dpo", "Loss of a pair: dpo, simpo or ipo.")
    beta: Positive | None = key(None, "β: strength of a preference; null: 0.1 (dpo, ipo) or 2 (simpo).")
    gamma: NonNegative | None = key(
        None, "simpo: γ, the margin by which the reward of the better response should exceed the other; null: 1."
    )
    label_smoothing: Annotated[float, Bounds(ge=0, lt=0.5)] = key(
        0.0, "dpo, simpo: share of the pairs whose order is assumed to be wrong."
    )
    reference: bool | None = key(
        None,
        "Compare the policy with the policy before training; null: yes for dpo and ipo, no for simpo, which has no "
        "reference policy.",
    )
    max_response_length: Annotated[int, Bounds(ge=2)] | None = key(
        None, "Longest response, in tokens; pairs with longer ones are left out. null: generation.max_generation_steps."
    )
    from_rollouts: str | None = key(
        None,
        "Run whose stored completions make the pairs: the best against the worst of each group, by their reward; "
        "null: the rows of `data` are pairs.",
    )
    min_margin: Positive = key(0.1, "from_rollouts: least difference between the two rewards of a pair.")


@dataclass
class StoppingConfig:
    """The choice of the best checkpoint, and early stopping."""

    metric: str | None = key(
        None,
        "Metric of metrics.jsonl that decides the best step, such as eval/accuracy or rewards/oracle/mean; null: "
        "no best step.",
    )
    mode: Annotated[str, OneOf("max", "min")] = key("max", "max: higher is better; min: lower is better.")
    min_delta: NonNegative = key(0.0, "Smallest improvement over the best value that counts.")
    patience: Count | None = key(
        None, "Evaluations without an improvement after which the run ends; null: it takes all its steps."
    )


# (temperature, top-k, top-p). Greedy sampling takes the likeliest token, so its numbers have no effect.
INFERENCE_CONFIGS = {"greedy": (1e-4, 1, 1.0), "standard": (0.7, 50, 0.95), "liberal": (0.85, 2000, 1.0)}


@dataclass
class EvaluationConfig:
    """Accuracy and reward on held-out problems."""

    num_samples: Natural = key(500, "Most problems per evaluation; 0: none, and no evaluation without `harness`.")
    batch_size: Count = key(128, "Problems generated at once.")
    inference_config: Annotated[str, OneOf("greedy", "standard", "liberal", "training")] = key(
        "greedy",
        "Sampling of an evaluation: greedy, standard or liberal; training: with the values of `generation`.",
    )
    num_passes: Count = key(1, "Samples per problem; above 1 gives pass@k and consistency.")
    correct: str = key(
        "math",
        "Reward that decides eval/accuracy: math, answer_correctness, multiple_choice, exact_match or code_tests;"
        " reward: the run's own; or any other value of training.reward_function.",
    )
    correct_at: Finite = key(1.0, "Score of `correct` from which a completion counts as correct.")
    with_rewards: bool | None = key(
        None,
        "true: score the completions with the run's own reward too, as eval/rewards/…; null: only if `correct` can use"
        " fewer than half of the references, or is the run's own reward.",
    )
    harness: Any = key(
        None,
        "Evaluations by other programs, which call the policy: lm_eval:TASK or inspect:TASK, with options of the"
        " program after a space, or a list of these; null: none.",
    )
    harness_limit: Count | None = key(None, "Most problems of each task of `harness`; null: all.")


@dataclass
class DistributedConfig:
    """The devices and processes of the run, and the cache of compiled programs."""

    mode: Annotated[str, OneOf("none", "auto", "slurm", "mpi", "manual")] = key(
        "none",
        "How the processes of the run find each other: none (one process), auto (TPU pods, GKE, and other clusters "
        "that JAX detects), slurm, mpi or manual.",
    )
    coordinator_address: str | None = key(
        None, "HOST:PORT where process 0 listens; required with mode=manual, otherwise null: detected."
    )
    num_processes: Count | None = key(None, "Number of processes; required with mode=manual, otherwise null: detected.")
    process_id: Natural | None = key(
        None, "Index of this process, from 0, unique to each; required with mode=manual, otherwise null: detected."
    )
    local_device_ids: list[int] | None = key(
        None, "Accelerators of the machine that this process uses; null: all, or one under Slurm and MPI."
    )
    initialization_timeout_s: Count = key(300, "Seconds within which all processes must connect.")
    heartbeat_timeout_s: Count = key(100, "Seconds without a heartbeat before a process counts as lost.")
    platform: Annotated[str, OneOf("auto", "cpu", "gpu", "tpu")] = key("auto", "Devices; auto: JAX chooses.")
    compilation_cache: str | None = key(
        "auto",
        "Directory of the compilation cache, which makes the next start faster; at most 1 GiB per kind of processor; "
        "or gs://BUCKET/DIRECTORY, without that limit; auto: the user's cache directory; null: no cache.",
    )
    num_cpu_devices: Annotated[int, Bounds(ge=1, le=512)] | None = key(
        None, "Number of virtual CPU devices, to try a mesh without accelerators; null: 1."
    )


@dataclass
class TrackingConfig:
    """Outputs of metrics besides metrics.jsonl, which is always written."""

    tensorboard: bool = key(True, "Write TensorBoard events.")
    trackers: list[str] = key(
        [],
        "Other trackers by name: trackio, swanlab, clearml, comet, wandb and mlflow (each an extra), and those that "
        "other packages add.",
    )
    progress: Annotated[str, OneOf("auto", "live", "plain", "none")] = key(
        "auto",
        "Progress display: auto (a curve in a notebook, live on a terminal, else plain lines), live, plain or none.",
    )
    histogram_bins: Count = key(10, "Bins of the reward histograms.")
    sample_every_n_steps: Natural = key(
        10, "Steps between samples of completions in trackers, besides step 1; 0: never."
    )
    num_samples: Natural = key(
        4, "Completions in each sample, half of them the best and half the worst of the step; 0: none."
    )
    mlflow: bool = key(
        False,
        "Send metrics, the configuration and the report to MLflow (extra `mlflow`).",
    )
    mlflow_uri: str | None = key(
        None,
        "URI of MLflow's store; null: MLFLOW_TRACKING_URI, otherwise sqlite:///mlflow.db in the working directory.",
    )
    report: bool = key(True, "Write report.html when the run ends.")
    profile_steps: list[int] = key(
        [3, 5], "With profile=true, the first and the last step to trace; beyond the end of the run, its last step."
    )


@dataclass
class RolloutsConfig:
    """Storage of completions, in `rollouts/` of the run's directory."""

    share: Share = key(1.0, "Share of groups whose completions are stored; a group is stored completely or not at all.")
    max_file_mb: Positive = key(
        64.0, "Size in MB at which a file of rollouts is closed; each checkpoint closes it too."
    )


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
    environment: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    engine: EngineConfig = dataclasses.field(default_factory=EngineConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    sft: SftConfig = dataclasses.field(default_factory=SftConfig)
    prefer: PreferConfig = dataclasses.field(default_factory=PreferConfig)
    stopping: StoppingConfig = dataclasses.field(default_factory=StoppingConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    distributed: DistributedConfig = dataclasses.field(default_factory=DistributedConfig)
    tracking: TrackingConfig = dataclasses.field(default_factory=TrackingConfig)
    rollouts: RolloutsConfig = dataclasses.field(default_factory=RolloutsConfig)
    seed: Annotated[int, Bounds(ge=0, le=2**32 - 1)] = key(0, "Seed of all random choices of the run.")
    project_name: str = key(
        "agent_tunix", "Name of the project: first part of the run's directory, and project in trackers."
    )
    wandb_disabled: bool = key(True, "false: send metrics to Weights & Biases (extra `wandb`).")
    profile: bool = key(
        False, "Trace the steps of tracking.profile_steps into profile/ of the run's directory, for ui.perfetto.dev."
    )


@dataclass
class EvaluateConfig:
    """Settings of `evaluate.py`; everything else comes from the run's own config.yaml."""

    checkpoint_dir: str | None = key(None, "Directory of a run, or its checkpoints/.")
    step: Any = key(
        None,
        "Step of the checkpoint; best: by stopping.metric; null: the latest complete one; 0: the model before "
        "training.",
    )
    inference_config: str = key(
        "greedy",
        "Sampling: greedy, standard or liberal, of temperature/top-k/top-p 1e-4/1/1.0, 0.7/50/0.95 and 0.85/2000/1.0, "
        "or training: that of the run.",
    )
    num_passes: int = key(1, "Samples per problem; above 1 gives pass@k and consistency.")
    num_samples: int | None = key(None, "Most problems; null: as many as in the run's own evaluations.")
    correct: str | None = key(
        None, "Reward that decides eval/accuracy, as evaluation.correct; null: the one of the run's own evaluations."
    )
    correct_at: float | None = key(None, "Score from which a completion counts as correct; null: that of the run.")
    compare_with: str | None = key(
        None, "Directory of another run, or of this one, whose checkpoint answers the same problems."
    )
    compare_step: Any = key(None, "Step of the checkpoint of compare_with, in the same form as `step`.")
    with_rewards: bool = key(False, "Score the completions with the run's own reward too.")
    harness: Any = key(None, "Evaluations by other programs, as evaluation.harness; those of the run are not repeated.")
    harness_limit: int | None = key(None, "Most problems of each task of `harness`; null: all.")
    trust: bool = key(
        False,
        "Trust a run that this installation did not start, and use the code, commands and endpoints that it names.",
    )
    output: str | None = key(
        None, "JSON file to write, with a .jsonl of the problems next to it; null: in the run's directory."
    )
    model: dict[str, Any] = key(
        {},
        "Values of `model` that replace those of the run; model.path=DIR without checkpoint_dir evaluates that model "
        "itself.",
    )
    data: dict[str, Any] = key({}, "Values of `data` that replace those of the run, for example data.path=DIR.")
    prompt: dict[str, Any] = key({}, "Values of `prompt` that replace those of the run.")
    generation: dict[str, Any] = key({}, "Values of `generation` that replace those of the run.")
