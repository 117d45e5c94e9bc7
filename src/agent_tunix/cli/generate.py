"""`agent-tunix generate`: completions for prompts from a terminal or a file. Importing it loads only Click."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_tunix.atomic_files import replacing
from agent_tunix.cli.options import step_option, trust_option
from agent_tunix.cli.printing import echo
from agent_tunix.errors import AgentTunixError, ConfigError
from agent_tunix.visible_text import escape_hidden_in_json

if TYPE_CHECKING:
    from agent_tunix.data import Example
    from agent_tunix.training.generation import Completion, Generator, PolicySource

_INTERRUPTED = 130


@click.command()
@click.argument("source", metavar="RUN|MODEL")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    help="One problem. Without --prompt and --file, read a conversation line by line.",
)
@click.option("--file", type=click.Path(path_type=Path), default=None, help="JSONL file of problems, one row per line.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the JSONL to this file instead of the screen.",
)
@step_option
@click.option(
    "--inference-config",
    type=click.Choice(["greedy", "standard", "liberal"]),
    default=None,
    help="Sampling settings of evaluation.  [greedy, unless one of the values below is given]",
)
@click.option("--temperature", type=click.FloatRange(min=0, min_open=True), default=None, help="Sampling temperature.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=None, help="Nucleus.")
@click.option("--top-k", type=click.IntRange(min=1), default=None, help="Draw only from the k likeliest tokens.")
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1, max_open=True),
    default=None,
    help="Draw only tokens with at least this share of the likeliest token's probability.",
)
@click.option("--num-generations", type=click.IntRange(min=1), default=1, help="Completions per problem.")
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=None,
    help="Longest completion.  [a run or its export: generation.max_generation_steps; another model: 512]",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the sampling.")
@click.option(
    "--prompt-config",
    metavar="NAME",
    default=None,
    help="Build prompts with a file of conf/prompt, such as `plain` for base models.",
)
@click.option("--raw", is_flag=True, help="Continue the text without a chat template; for base models.")
@click.option("--score", is_flag=True, help="Score each completion with the run's own reward.")
@trust_option
def generate(
    source: str,
    prompts: tuple[str, ...],
    file: Path | None,
    output: Path | None,
    step: Any,
    inference_config: str | None,
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    num_generations: int,
    max_new_tokens: int | None,
    seed: int,
    prompt_config: str | None,
    raw: bool,
    score: bool,
    trust: bool,
) -> None:
    """Generate completions with a run's trained policy, or with any model on disk.

    The source is the directory of a run, or a Hugging Face model directory. Prompts of a run, and of its export, are
    made as in its training (chat template, system message, worked examples).

    \b
    With --prompt    the completion is printed;
    with --file      one JSON row is printed, or written to --output, for each completion: row (the line of the
                     problem), prompt, completion, tokens (ids), ended (true if it was not cut), and with --score
                     score, components and outcome. A problem is in the column data.prompt_column of the run, or in
                     prompt, messages or question;
    with neither     a conversation is read from the terminal, line by line; Ctrl-D ends it.

    Exit status: 0; 2 the command, the directory, the file or the reward cannot be used; 130 interrupted.
    """
    if len(prompts) > 1:
        raise click.UsageError(f"only one --prompt is allowed, not {len(prompts)}; give several problems with --file")
    prompt = next(iter(prompts), None)
    if prompt is not None and file is not None:
        raise click.UsageError(
            "only one of --prompt, for one problem, and --file, for several, is allowed; remove one of them"
        )
    if prompt is not None and not prompt.strip():
        raise click.UsageError("--prompt must contain a problem, not only white space")
    if raw and prompt_config is not None:
        raise click.UsageError(
            "only one of --raw, for prompts without a template, and --prompt-config is allowed; remove one of them"
        )
    talking = prompt is None and file is None
    if talking and (num_generations > 1 or output is not None or score):
        raise click.UsageError("--num-generations, --output and --score require --prompt or --file")
    from agent_tunix.training.generator_setup import GenerationSettings, open_generator

    settings = GenerationSettings(
        inference_config, temperature, top_p, top_k, min_p, max_new_tokens, num_generations, seed
    )
    try:
        found = _find(Path(source), step, score, prompt_config, raw)
        examples = None if talking else _examples(found, prompt, file)
        with open_generator(found, settings, examples if score else None, trust=trust) as generator:
            if examples is None:
                _talk(generator)
            elif output is not None:
                _write_file(output, _rows(generator, examples))
            elif file is not None:
                for row in _rows(generator, examples):
                    echo(row)
            else:
                for completion in next(generator.complete(examples)):
                    _show(completion)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _find(source: Path, step: Any, score: bool, prompt_config: str | None, raw: bool) -> "PolicySource":
    """Return the policy to sample from, without loading its weights."""
    from agent_tunix.training.generation import find_source, with_prompt

    found = with_prompt(find_source(source, None if step == "latest" else step), prompt_config, raw=raw)
    if score and not found.is_run:
        raise ConfigError(
            f"--score requires a run, whose reward it uses, but {source} is a model directory; remove --score",
            code="invalid_request",
        )
    if found.prompts is not None:
        echo(f"prompts as in training, by {found.prompts}; --raw or --prompt-config makes others", err=True)
    return found


def _examples(found: "PolicySource", prompt: str | None, file: Path | None) -> "list[Example]":
    """Return the problems, read with the columns of the run."""
    from agent_tunix.data import read_problems
    from agent_tunix.training.generation import make_prompt

    data = found.run.config.data
    return read_problems(file, data) if file is not None else [make_prompt(prompt or "", 1, data)]


def _rows(generator: "Generator", examples: "list[Example]") -> Iterator[str]:
    """Yield the completions as JSON lines."""
    for example, group in zip(examples, generator.complete(examples), strict=True):
        for completion in group:
            yield escape_hidden_in_json(json.dumps(completion.to_row(example.index), ensure_ascii=False))


def _write_file(path: Path, rows: Iterator[str]) -> None:
    """Write all rows, or no file if an error occurs."""
    try:
        with replacing(path) as file:
            for row in rows:
                file.write(f"{row}\n".encode())
    except AgentTunixError:
        raise
    except OSError as error:
        raise ConfigError(f"--output {path} cannot be written: {error}", code="invalid_request") from error


def _show(completion: "Completion") -> None:
    echo(completion.sample.shown)
    if completion.sample.episode is None and not completion.sample.ended:
        echo(f"(cut after {completion.sample.num_tokens} tokens)", err=True)
    if (score := completion.score) is not None:
        parts = ", ".join(f"{name} {value}" for name, value in score.components.items())
        echo(f"score {score.value} ({parts}; {score.outcome}) {score.detail}".rstrip(), err=True)


def _talk(generator: "Generator") -> None:
    """Answer each line of input."""
    from agent_tunix.training.generation import Conversation

    conversation = Conversation(generator)
    for line in _typed_lines() if sys.stdin.isatty() else sys.stdin:
        if line.strip():
            _show(conversation.answer(line.strip()))


def _typed_lines() -> Iterator[str]:
    """Yield lines typed at a terminal until Ctrl-D, with editing and history if Python has readline."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # importing it enables editing in input()
    while True:
        try:
            yield input("> ")
        except EOFError:
            echo()
            return
