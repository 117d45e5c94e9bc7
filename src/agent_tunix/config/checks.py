"""Checks of keys that must agree with one another. `limits` checks the values of single keys.

Every message names the key, what was required, what arrived, and what to do.
"""

import datetime
import math
import re
import string
from collections.abc import Iterator

from agent_tunix.config.data_sets import data_problems, data_sets, mixture_problems, pass_rate_key
from agent_tunix.config.engines import engine_problems
from agent_tunix.config.episodes import (
    credit_problems,
    environment_problems,
    episode_tokens,
    has_agent,
    has_environment,
)
from agent_tunix.config.harnesses import evaluates
from agent_tunix.config.limits import value_problems
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.optimizers import optimizer_problems
from agent_tunix.config.preferences import preference_problems
from agent_tunix.config.schema import Config, DistributedConfig, EvaluationConfig, GrpoConfig
from agent_tunix.errors import ConfigError

# Optional clips that a loss ignores.
_UNREAD_CLIPS = {
    "reinforce": ("epsilon_high", "epsilon_c"),
    "sapo": ("epsilon_high", "epsilon_c"),
    "cispo": ("epsilon_c",),
    "gmpo": ("epsilon_c",),
    "dppo_tv": ("epsilon_c",),
    "dppo_kl": ("epsilon_c",),
}
# Corrections that mask, and their lower and upper bounds where the configuration gives none.
_BOUNDS: dict[str, tuple[float | None, float]] = {
    "icepop": (0.5, 5.0),
    "sequence_mask": (None, 3.0),
    "geometric_mask": (0.999, 1.001),
}


def check(config: Config) -> None:
    """Raise ConfigError, with a line for each problem, if a configuration cannot run; nothing costly is loaded."""
    problems = list(_problems(config))
    if problems:
        raise ConfigError("\n".join(problems))


def _problems(config: Config) -> Iterator[str]:
    yield from value_problems(config)
    yield from _model_problems(config)
    yield from _algorithm_problems(config.grpo, config.model.lora_rank, pass_rate_key(config.data) is not None)
    yield from _ahead_problems(config)
    yield from _replay_problems(config)
    yield from _correction_problems(config.grpo, is_ahead=config.engine.max_staleness > 0)
    yield from _batch_problems(config)
    yield from _length_problems(config)
    yield from environment_problems(config)
    yield from engine_problems(config)
    yield from credit_problems(config)
    if has_agent(config) and (config.grpo.teacher_prompt is not None or config.grpo.teacher == "self"):
        yield (
            "grpo.teacher=self and grpo.teacher_prompt require a run that writes its prompts itself, but an agent "
            "sends its own; use an environment or tools, or a model as grpo.teacher without a teacher_prompt"
        )
    if config.grpo.observation_nll and not has_environment(config):
        yield (
            "grpo.observation_nll requires tools, an environment or an agent, whose tokens it predicts, but there is "
            "none; set environment.name or environment.tools, or grpo.observation_nll=0"
        )
    yield from _data_problems(config)
    yield from _harness_problems(config.evaluation)
    yield from _stopping_problems(config)
    yield from _process_problems(config.distributed)
    yield from optimizer_problems(config.optimizer, config.scheduler)
    yield from preference_problems(config.prefer)
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
    if address is not None and not (re.fullmatch(r".+:\d{1,5}", address) and int(address.rpartition(":")[2]) < 2**16):
        yield (
            f"distributed.coordinator_address must be HOST:PORT, with a port up to 65535, not {address!r}; HOST is the "
            "machine of process 0"
        )
    if count is not None and index is not None and index >= count > 0:
        yield (
            f"distributed.process_id must be below distributed.num_processes, but {index} is not below {count}; use "
            f"0 to {count - 1}"
        )
    if any(device < 0 for device in distributed.local_device_ids or []):
        yield f"distributed.local_device_ids must be numbers from 0, not {distributed.local_device_ids}"


def _data_problems(config: Config) -> Iterator[str]:
    data = config.data
    yield from data_problems(data, "data.", streaming=data.streaming)
    if data.streaming and config.training.num_batches is None:
        yield (
            "data.streaming=true requires training.num_batches, because the number of rows is not known; set "
            "training.num_batches"
        )
    if data.streaming and (key := pass_rate_key(data)):
        yield (
            f"{key}=pass_rate requires all rows in memory, to draw them again, but data.streaming=true; set "
            f"data.streaming=false, or remove {key}"
        )
    if data.set_shares == "pass_rate" and len(data.mixture) < 2:
        yield (
            "data.set_shares=pass_rate requires several sets, but data.mixture has "
            f"{len(data.mixture)}; name the sets in data.mixture, or set data.set_shares=fixed"
        )
    problems = list(mixture_problems(config))
    yield from problems
    if problems:
        return
    for name, of_mixture in data_sets(config).items():
        own, prefix = data.mixture[name], f"data.mixture.{name}."
        yield from value_problems(of_mixture.config.data, prefix, own)
        if own.keys() & {"curriculum", "tasks"}:
            yield from data_problems(of_mixture.config.data, prefix, streaming=data.streaming)


def _harness_problems(evaluation: EvaluationConfig) -> Iterator[str]:
    if evaluation.harness_limit is not None and not evaluation.harness:
        yield (
            f"evaluation.harness_limit={evaluation.harness_limit} requires evaluation.harness, but there is none; set "
            "it, for example to lm_eval:gsm8k, or remove the limit"
        )


def _stopping_problems(config: Config) -> Iterator[str]:
    stopping = config.stopping
    if stopping.metric is None:
        if stopping.patience is not None:
            yield (
                "stopping.patience requires stopping.metric, but it is null; for example stopping.metric=eval/accuracy"
            )
    elif not evaluates(config.evaluation) and stopping.metric.startswith("eval/"):
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


def _algorithm_problems(grpo: GrpoConfig, lora_rank: int, by_pass_rate: bool) -> Iterator[str]:
    """Yield a line for each setting that contradicts another or would silently do nothing."""
    high = grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high
    if grpo.loss in ("gspo", "gmpo") and grpo.loss_agg_mode != "sequence-mean-token-mean":
        yield (
            f"grpo.loss={grpo.loss} requires grpo.loss_agg_mode=sequence-mean-token-mean, because it has one loss per "
            f"completion, but the mode is {grpo.loss_agg_mode}; change the mode, or use grpo.loss=gspo_token"
        )
    if grpo.length_exponent != 1.0 and grpo.loss_agg_mode != "length-weighted-token-sum":
        yield (
            f"grpo.length_exponent={grpo.length_exponent:g} requires grpo.loss_agg_mode=length-weighted-token-sum, but "
            f"the mode is {grpo.loss_agg_mode}; change the mode, or remove the exponent"
        )
    if grpo.loss == "reinforce" and grpo.num_iterations > 1:
        yield (
            "grpo.loss=reinforce requires grpo.num_iterations=1, because it has no importance ratio, but it is "
            f"{grpo.num_iterations}; use grpo.loss=grpo for several iterations"
        )
    if grpo.teacher is None:
        if grpo.loss == "none" and not grpo.observation_nll:
            yield (
                "grpo.loss=none requires grpo.teacher or grpo.observation_nll, because nothing else trains; set one of "
                "them, or another loss"
            )
        if grpo.teacher_top_k is not None:
            yield (
                f"grpo.teacher_top_k={grpo.teacher_top_k} requires grpo.teacher, but it is null; set grpo.teacher, or "
                "remove the key"
            )
        if grpo.teacher_prompt is not None:
            yield (
                "grpo.teacher_prompt requires grpo.teacher, but it is null; set grpo.teacher=self or a model, or "
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
    if grpo.off_policy_threshold is not None and grpo.num_iterations == 1 and not grpo.replay_groups:
        yield (
            "grpo.off_policy_threshold requires grpo.num_iterations above 1, because the first update trains the "
            "policy that sampled, but it is 1; set it to 2, or remove the threshold"
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
    if grpo.filter_by is not None and not (grpo.dynamic_sampling_rounds or grpo.replay_groups or by_pass_rate):
        yield (
            f"grpo.filter_by={grpo.filter_by} requires grpo.dynamic_sampling_rounds or grpo.replay_groups above 0, "
            "data.sampling=pass_rate or data.set_shares=pass_rate, because nothing else reads it; set one of them, or "
            "grpo.filter_by=null"
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


def _ahead_problems(config: Config) -> Iterator[str]:
    """Yield a line for each setting that needs the result of a step before the next one is sampled."""
    lag = config.engine.max_staleness
    if lag and config.grpo.dynamic_sampling_rounds:
        yield (
            f"engine.max_staleness must be 0 with grpo.dynamic_sampling_rounds={config.grpo.dynamic_sampling_rounds}, "
            "because whether a step needs another round is known only after it was scored, when the engine has later "
            f"weights, but it is {lag}; set one of them to 0"
        )
    if lag and (key := pass_rate_key(config.data)):
        yield (
            f"engine.max_staleness must be 0 with {key}=pass_rate, because the prompts of a step depend on the "
            f"results of all steps before it, but it is {lag}; set it to 0, or remove {key}"
        )


def _replay_problems(config: Config) -> Iterator[str]:
    """Yield a line for each setting with which groups cannot train again in a later step."""
    grpo = config.grpo
    if not grpo.replay_groups:
        return
    start = f"grpo.replay_groups={grpo.replay_groups} must be 0"
    if config.engine.max_staleness:
        yield (
            f"{start} with engine.max_staleness={config.engine.max_staleness}, because the completions of later steps "
            "may be as old as the kept ones; set one of them to 0"
        )
    if has_agent(config):
        yield f"{start} with an agent, whose episodes are several rows of tokens; set it to 0"
    if grpo.credit != "episode" or grpo.advantage_scaling == "component":
        name = "advantage_scaling=component" if grpo.credit == "episode" else f"credit={grpo.credit}"
        yield f"{start} with grpo.{name}, which also learns from groups with equal totals; set it to 0"
    if grpo.loss in ("reinforce", "none"):
        yield (
            f"{start} with grpo.loss={grpo.loss}, which has no importance ratio for completions of earlier weights; "
            "set it to 0, or use grpo.loss=grpo"
        )


def correction_bounds(grpo: GrpoConfig) -> tuple[float | None, float]:
    """Return the lower and the upper bound of the sampler's correction; the lower one is None if there is none."""
    floor, cap = _BOUNDS.get(grpo.sampler_correction, (None, 2.0))
    return (
        floor if grpo.sampler_correction_floor is None else grpo.sampler_correction_floor,
        cap if grpo.sampler_correction_cap is None else grpo.sampler_correction_cap,
    )


def _correction_problems(grpo: GrpoConfig, is_ahead: bool) -> Iterator[str]:
    masks = grpo.sampler_correction in _BOUNDS
    is_off_policy = grpo.num_iterations > 1 or grpo.replay_groups > 0
    unused = grpo.sampler_correction == "none" or (
        grpo.sampler_correction == "auto" and not (is_ahead and grpo.num_iterations == 1)
    )
    if grpo.sampler_correction_cap is not None and unused:
        yield (
            f"grpo.sampler_correction_cap={grpo.sampler_correction_cap:g} requires a correction, but "
            f"grpo.sampler_correction={grpo.sampler_correction} applies none to this run; remove it, or set "
            f"grpo.sampler_correction={'icepop' if is_off_policy else 'token'}"
        )
    if grpo.sampler_correction not in ("auto", "none") and not masks and is_off_policy:
        yield (
            f"grpo.sampler_correction={grpo.sampler_correction} requires grpo.num_iterations=1 and "
            "grpo.replay_groups=0, because the importance ratios of several updates and of replay hold the correction "
            f"already, but they are {grpo.num_iterations} and {grpo.replay_groups}; set grpo.sampler_correction=none, "
            f"or a mask: {', '.join(_BOUNDS)}"
        )
    floor, cap = correction_bounds(grpo)
    if grpo.sampler_correction_floor is not None and not masks:
        yield (
            f"grpo.sampler_correction_floor={grpo.sampler_correction_floor:g} requires grpo.sampler_correction to be "
            f"{', '.join(_BOUNDS)}, not {grpo.sampler_correction}; remove it, or choose one of them"
        )
    elif floor is not None and floor >= cap:
        yield (
            f"grpo.sampler_correction_floor must be below grpo.sampler_correction_cap, but {floor:g} is not below "
            f"{cap:g}; set both"
        )


def _model_problems(config: Config) -> Iterator[str]:
    model = config.model
    if model.from_run is not None:  # `runs.weights.starting_run` resolves it for the commands that train
        yield (
            "model.from_run is a key of agent-tunix train, sft, prefer and plan, not of this command; give the "
            "run as checkpoint_dir=RUN, or set training.init_checkpoint"
        )
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
    if model.quantization is not None and model.lora_rank == 0:
        yield (
            f"model.quantization={model.quantization} requires an adapter, because it freezes the base; set "
            "model.lora_rank above 0 (for example 16), or model.quantization=null"
        )


def _batch_problems(config: Config) -> Iterator[str]:
    """Yield a line if the batch, its parts and the devices do not divide evenly, with values that do."""
    training, generations = config.training, config.grpo.num_generations
    size, micro, steps = training.batch_size, training.micro_batch_size, training.gradient_accumulation_steps
    if any(number is not None and number < 1 for number in (size, micro, steps, generations)):
        return  # their ranges are reported already
    if micro is not None and steps is not None and micro * steps != size:
        remedies = [f"training.batch_size={micro * steps}"]
        remedies += [f"training.gradient_accumulation_steps={size // micro}"] if size % micro == 0 else []
        remedies += [f"training.micro_batch_size={size // steps}"] if size % steps == 0 else []
        yield (
            "training.micro_batch_size × training.gradient_accumulation_steps must be training.batch_size, but "
            f"{micro} × {steps} = {micro * steps} is not {size}; use {' or '.join(remedies)}"
        )
        return
    divisor = micro or steps or 1
    if size % divisor:
        key = f"training.{'gradient_accumulation_steps' if micro is None else 'micro_batch_size'}"
        below = next(number for number in range(min(divisor - 1, size), 0, -1) if size % number == 0)
        yield (
            f"training.batch_size must be divisible by {key}, but {size} is not divisible by {divisor}; use "
            f"training.batch_size={_multiple(size, divisor)} or {key}={below}"
        )
        return
    try:
        shape = read_mesh_shape(config.model.mesh_shape)
    except ValueError:
        return  # reported already
    prompts, devices = micro_batch_size(config), 1 if shape is None else shape.row_shards
    if (prompts * generations) % devices:
        remedies = [f"grpo.num_generations={_multiple(generations, devices // math.gcd(devices, prompts))}"]
        if micro is None and prompts == size:
            remedies.insert(0, f"training.batch_size={_multiple(size, devices // math.gcd(devices, generations))}")
        yield (
            "a micro-batch of completions must be divisible by the devices that share its rows (data × fsdp of "
            f"model.mesh_shape), but {prompts} prompts × grpo.num_generations {generations} = {prompts * generations} "
            f"is not divisible by {devices}; use {' or '.join(remedies)}"
        )


def _multiple(number: int, unit: int) -> int:
    """Return the least multiple of a unit that is not below a number."""
    return math.ceil(number / unit) * unit


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
