"""The README.md of an exported model: its base model, data, reward, settings and results."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent_tunix.config.data_sets import data_name
from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.preferences import preference_settings
from agent_tunix.config.schema import Config
from agent_tunix.errors import RunDirectoryError
from agent_tunix.policy.files.teacher import SELF
from agent_tunix.tracking import compare_ends
from agent_tunix.tracking.report import write_report
from agent_tunix.tracking.report.charts import SECTIONS
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.tracking.summary import explain_unknown, unknown_figures
from agent_tunix.visible_text import escape_hidden, one_line

# Characters with a meaning in Markdown or HTML anywhere in a line.
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&!#]")
_PACKAGES = ("agent_tunix", "google-tunix", "jax", "flax", "optax")


def write_card(
    run: StoredRun,
    directory: Path,
    step: int,
    messages: Sequence[Mapping[str, Any]],
    *,
    adapter: bool,
    repository: str | None = None,
) -> None:
    """Write README.md, and the run's curves in `plots/`.

    Args:
        run: The run that trained the model.
        directory: Directory of the exported model.
        step: Step of the checkpoint.
        messages: Conversation that the policy was prompted with, for the example of its use.
        adapter: True if the directory holds only an adapter.
        repository: Repository of the hub that the model is loaded from; None for a directory.
    """
    plots = _copy_plots(run, directory / "plots")
    text = "\n\n".join(_sections(run, step, messages, adapter, plots, repository or "DIRECTORY"))
    (directory / "README.md").write_text(text + "\n", encoding="utf-8")


def _sections(
    run: StoredRun, step: int, messages: Sequence[Mapping[str, Any]], adapter: bool, plots: list[str], place: str
) -> Iterator[str]:
    config = run.config
    base = _base_model(config)
    method = _method_of(run)
    yield _front_matter(config, base, adapter, method)
    yield f"# {_escape(config.project_name)}"
    what = "LoRA adapter" if adapter else "model"
    how = {
        "sft": "on target texts (a supervised start)",
        "prefer": f"on pairs of responses ({config.prefer.loss})",
    }.get(method, "by reinforcement learning (GRPO)")
    yield (
        f"This {what} was trained from {_code(base) if base else 'a model on disk'} {how} with agent_tunix; it is"
        f" the policy after step {step}."
    )
    yield "## Results"
    yield _outcome(run, step)
    yield from map(_captioned, plots)
    if method == "grpo":
        yield "## The reward"
        yield _reward(run)
    yield "## Training"
    yield _table(_settings(config, method))
    yield "## Use"
    yield _usage(config, messages, adapter, base, place)
    yield "## Versions"
    yield _versions(run)


def _captioned(picture: str) -> str:
    stem = Path(picture).stem
    title, note = SECTIONS.get(stem, (_escape(stem), ""))
    return f"![{title}](plots/{quote(picture)})\n\n{f'**{title}.** {note}'.strip()}"


def _method_of(run: StoredRun) -> str:
    try:
        return str(run.environment.get("method", "grpo"))
    except RunDirectoryError:
        return "grpo"


def _front_matter(config: Config, base: str | None, adapter: bool, method: str) -> str:
    lines = ["---", f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation"]
    if base and config.model.path and config.model.path.startswith("hf://"):
        lines.append(f"base_model: {json.dumps(base.partition('@')[0])}")
    tags = {"sft": ["- sft"], "prefer": [f"- {config.prefer.loss}"]}
    lines += ["tags:", *tags.get(method, ["- grpo", "- reinforcement-learning"]), "- agent_tunix", "---"]
    return "\n".join(lines)


def _base_model(config: Config) -> str | None:
    return "the model that agent_tunix ships" if config.model.path is None else _model_name(config.model.path)


def _teacher_name(teacher: str) -> str:
    return "the policy itself" if teacher == SELF else _model_name(teacher)


def _model_name(path: str) -> str:
    return path.removeprefix("hf://") if "://" in path else Path(path).name


def _outcome(run: StoredRun, step: int) -> str:
    rows = [row for row in run.rows if row["step"] <= step]
    before, after = compare_ends(rows)
    if all(value is None for value in (*before.values(), *after.values())):
        return "No evaluation of this step is stored."
    lines = ["| | before | after |", "| --- | ---: | ---: |"]
    for name, first in before.items():
        lines.append(f"| {_escape(name)} | {_figure(first)} | {_figure(after[name])} |")
    reasons = explain_unknown(unknown_figures(rows, run.config.prompt.format))
    return "\n\n".join(["\n".join(lines), *(f"{_escape(reason)}." for reason in reasons)])


def _figure(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"


def _reward(run: StoredRun) -> str:
    try:
        description, fingerprint = str(run.environment.get("reward", "")), str(run.fingerprint.get("hash", ""))
    except RunDirectoryError as error:
        return f"Unknown: {_escape(error)}"
    description = escape_hidden(description).replace("```", "")
    return f"```\n{description}\n```\n\nFingerprint: {_code(fingerprint)}"


def _settings(config: Config, method: str) -> dict[str, Any]:
    model, training, grpo, optimizer = config.model, config.training, config.grpo, config.optimizer
    tuned = f"LoRA, rank {model.lora_rank}, alpha {model.lora_alpha:g}" if model.lora_rank else "all weights"
    algorithm: dict[str, Any] = {
        "completions per prompt": grpo.num_generations,
        "updates per batch": grpo.num_iterations,
        "KL weight β": grpo.beta,
        "clip ε": grpo.epsilon,
        **({} if grpo.teacher is None else {"teacher": _teacher_name(grpo.teacher)}),
    }
    if method == "prefer":
        preferences = preference_settings(config.prefer)
        algorithm = {"loss": preferences.loss, "β": preferences.beta, "γ": preferences.gamma}
    return {
        "data": data_name(config),
        "system prompt": config.prompt.system or "none",
        "prompts per step": training.batch_size,
        **({} if method == "sft" else algorithm),
        "trained": tuned,
        "learning rate": optimizer.learning_rate,
        "temperature": config.generation.temperature,
        "longest prompt, tokens": prompt_tokens(config),
        "longest completion, tokens": config.generation.max_generation_steps,
        "seed": config.seed,
    }


def _table(values: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {_escape(value)} |" for name, value in values.items())])


def _escape(value: Any) -> str:
    """Return a value as one line of text, without any Markdown or HTML in it."""
    return _MARKUP.sub(r"\\\g<0>", one_line(" ".join(str(value).split())))


def _code(value: Any) -> str:
    """Return a value as a code span, in which only a backtick has a meaning."""
    return f"`{one_line(' '.join(str(value).split())).replace('`', chr(39))}`"


def _usage(config: Config, messages: Sequence[Mapping[str, Any]], adapter: bool, base: str | None, place: str) -> str:
    """Return Python that loads the model and prompts it as in training."""
    stop = config.generation.stop_strings
    stops = f", stop_strings={stop!a}, tokenizer=tokenizer" if stop else ""
    if adapter:
        loader, note = "AutoPeftModelForCausalLM", "  # loads the base model too"
        imports = f"from peft import {loader}  # requires PyTorch\nfrom transformers import AutoTokenizer"
    else:
        loader, note = "AutoModelForCausalLM", ""
        imports = f"from transformers import {loader}, AutoTokenizer  # requires PyTorch"
    greedy = "greedy, as in the evaluation" if config.evaluation.inference_config == "greedy" else "greedy"
    code = f"""{imports}

model = {loader}.from_pretrained("{place}"){note}
tokenizer = AutoTokenizer.from_pretrained("{place}")
messages = {list(messages)!a}  # as in training
settings = {config.prompt.template_args!a}  # of the chat template
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True, **settings
)
length = {config.generation.max_generation_steps}
output = model.generate(**inputs, max_new_tokens=length, do_sample=False{stops})  # {greedy}
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))"""
    base_model = f"\n\nThe base model is {_code(base) if base else 'the one it was trained from'}." if adapter else ""
    return f"```python\n{code}\n```{base_model}"


def _versions(run: StoredRun) -> str:
    try:
        versions = run.environment.get("versions", {})
    except RunDirectoryError:
        versions = {}
    return ", ".join(f"{name} {_escape(versions[name])}" for name in _PACKAGES if name in versions) or "Not recorded."


def _copy_plots(run: StoredRun, directory: Path) -> list[str]:
    """Copy the run's plots and return their names. A run without plots has them drawn."""
    with tempfile.TemporaryDirectory() as scratch:
        source = run.root / "plots"
        if not source.is_dir():
            write_report(run, Path(scratch))
            source = Path(scratch) / "plots"
        plots = sorted(source.glob("*.png"))
        if plots:
            directory.mkdir()
        for path in plots:
            shutil.copyfile(path, directory / path.name)
        return [path.name for path in plots]
