import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.training.support import small_run

from agent_tunix.cli import main
from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.data import load_evaluation
from agent_tunix.evaluation.request import read_request
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.runs.exported_prompts import write_prompts
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.preflight import preflight
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.tracking import StoredRun
from agent_tunix.training.exporting import export_run
from agent_tunix.training.generation import Conversation, Generator, find_source, with_prompt
from agent_tunix.training.train import train

QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"
MODEL = str(EMBEDDED_MODEL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps whose prompts have a system message, a template and two worked examples."""
    root = tmp_path_factory.mktemp("generate") / "run"
    config = small_run(
        "prompt.num_few_shot=1",
        "prompt.few_shot=[{prompt: 'What is 2 plus 2?', answer: '4', solution: '2 + 2 = 4'}]",
        "prompt.template='{question} Go on.'",
        "generation.max_prompt_length=256",
        "training.save_interval_steps=2",
    )
    train(preflight(config, Path.cwd()), root)
    return root


def invoke(*arguments: object, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["generate", *map(str, arguments)], input=typed)


def rows_of(ran: Result) -> list[dict[str, Any]]:
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def write_rows(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_a_prompt_is_completed() -> None:
    ran = invoke(MODEL, "--prompt", QUESTION, "--max-new-tokens", 2)
    assert (ran.exit_code, ran.stderr) == (0, "(cut after 2 tokens)\n"), ran.output
    assert ran.stdout.strip()


@pytest.fixture
def base_model(tmp_path: Path) -> Path:
    """Return a model without a chat template, as base models are."""
    directory = shutil.copytree(MODEL, tmp_path / "base")
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


@pytest.mark.slow
def test_a_base_model_continues_a_text_or_takes_a_prompt_configuration(base_model: Path) -> None:
    refused = invoke(base_model, "--prompt", QUESTION)
    assert refused.exit_code == 2
    assert "--prompt-config plain, or --raw" in refused.stderr
    for options in (["--raw"], ["--prompt-config", "plain"]):
        (row,) = rows_of(
            invoke(
                base_model,
                "--file",
                write_rows(base_model / "rows.jsonl", {"prompt": QUESTION}),
                "--max-new-tokens",
                2,
                *options,
            )
        )
        assert len(row["tokens"]) <= 2


@pytest.mark.slow
def test_a_file_gives_a_row_for_each_completion(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": QUESTION},
    ]
    rows = write_rows(
        tmp_path / "rows.jsonl", {"question": QUESTION}, {"prompt": "What is 2 plus 2?"}, {"messages": talk}
    )
    sampled = ["--inference-config", "standard", "--num-generations", 2]
    found = rows_of(invoke(MODEL, "--file", rows, *sampled))
    assert [(row["row"], row["prompt"]) for row in found[::2]] == [
        (1, QUESTION),
        (2, "What is 2 plus 2?"),
        (3, QUESTION),
    ]
    assert all(list(row) == ["row", "prompt", "completion", "tokens", "ended"] for row in found)
    assert all(isinstance(row["ended"], bool) and row["tokens"] for row in found)
    assert rows_of(invoke(MODEL, "--file", rows, *sampled, "--seed", 1)) != found
    assert invoke(MODEL, "--file", rows, *sampled, "--seed", 0, "--output", tmp_path / "out.jsonl").stdout == ""
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == found
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out.jsonl"}


@pytest.mark.slow
def test_a_run_completes_problems_as_its_evaluation_does(run: Path, tmp_path: Path) -> None:
    config = StoredRun(run).config
    assert (len(config.prompt.few_shot), config.prompt.num_few_shot) == (2, 0)  # those that were drawn
    held_out = load_evaluation(config).examples
    rows = write_rows(tmp_path / "rows.jsonl", *(dict(example.columns) for example in held_out))
    found = rows_of(invoke(run, "--file", rows, "--score"))
    shown = {shot["prompt"] for shot in config.prompt.few_shot}
    scores = [row["score"] for row in found if row["prompt"] not in shown]
    accuracy = StoredRun(run).rows[-1]["eval/accuracy"]
    assert sum(score == 1.0 for score in scores) / len(scores) == pytest.approx(accuracy)
    assert all(row["components"] == {"math": row["score"]} and row["outcome"] == "scored" for row in found)


@pytest.mark.slow
def test_a_run_has_steps_and_a_reward(run: Path) -> None:
    for step in ("0", "2", "latest"):
        assert invoke(run, "--prompt", QUESTION, "--step", step).exit_code == 0
    missing = invoke(run, "--prompt", QUESTION, "--step", 3)
    assert (missing.exit_code, "[2, 4]" in missing.stderr) == (2, True)
    unscored = invoke(run, "--prompt", QUESTION, "--score")
    assert (unscored.exit_code, "requires the parameter `answer`" in unscored.stderr) == (2, True)


@pytest.mark.slow
def test_an_own_batch_function_scores_as_in_training(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "mine.py").write_text(
        "def short(completions, **kwargs):\n    return [1.0 / len(text) for text in completions]\n"
    )
    config = StoredRun(run).config
    config.training.reward_function = f"{tmp_path / 'mine.py'}:short"
    (tmp_path / "run" / "config.yaml").write_text(to_yaml(config))
    rows = write_rows(tmp_path / "rows.jsonl", {"question": QUESTION}, {"question": "What is 2 plus 2?"})
    found = rows_of(invoke(tmp_path / "run", "--file", rows, "--score", "--trust"))
    assert [row["score"] for row in found] == [pytest.approx(1 / len(row["completion"])) for row in found]


# Conversations.


@pytest.mark.slow
def test_lines_of_standard_input_are_a_conversation() -> None:
    ran = invoke(MODEL, "--max-new-tokens", 4, typed=f"{QUESTION}\n\nWhat is 2 plus 2?\n")
    assert ran.exit_code == 0, ran.output
    assert len(ran.stdout.splitlines()) == 2


@pytest.mark.slow
def test_an_export_answers_as_its_run(run: Path, tmp_path: Path) -> None:
    export_run(find_run(run), tmp_path / "out")
    rows = write_rows(tmp_path / "rows.jsonl", {"question": QUESTION}, {"question": "What is 2 plus 2?"})
    ran = invoke(tmp_path / "out", "--file", rows)
    assert rows_of(ran) == rows_of(invoke(run, "--file", rows))
    assert "prompts as in training" in ran.stderr


def test_an_export_keeps_the_prompts_for_questions_and_evaluations_but_names_no_template(tmp_path: Path) -> None:
    model = shutil.copytree(MODEL, tmp_path / "model")
    write_prompts(small_run(r"prompt.system='As \${x} says.'", "prompt.chat_template=/private.jinja"), model)
    found = find_source(model, None)
    assert found.run.config.prompt.system == "As ${x} says."
    (model / "agent_tunix.yaml").write_text("prompt: {chat_template: /private.jinja}")
    assert find_source(model, None).run.config.prompt.chat_template is None
    (model / "agent_tunix.yaml").write_text("prompt: {system: Add., template: 'Q: {prompt}'}")
    asked = EvaluateConfig(model={"path": str(model)}, prompt={"template": "{prompt}"})
    evaluated = read_request(asked).subject.run.config.prompt
    assert (evaluated.system, evaluated.template) == ("Add.", "{prompt}")
    assert with_prompt(found, "plain", raw=False).run.config.prompt.system is None


@pytest.mark.slow
def test_each_answer_is_part_of_the_next_prompt(run: Path) -> None:
    generator = Generator(find_source(run, None), SamplingParams(8, greedy=True), num_generations=1, seed=0)
    talk = Conversation(generator)
    first, second = (talk.answer(line).sample for line in (QUESTION, "And 2 plus 2?"))
    trained_on = next(StoredRun(run).rollouts.iterate()).samples[0].messages
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message["role"] for message in trained_on[:-1]] == roles
    assert [message["role"] for message in first.messages[:-1]] == roles
    assert trained_on[-2]["content"].endswith(" Go on.")
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["content"] for message in second.messages[-2:-1]] == ["And 2 plus 2? Go on."]
    assert sum(message["role"] == "system" for message in second.messages) == 1


@pytest.mark.slow
def test_control_d_ends_a_conversation_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agent_tunix", "generate", MODEL]
    environment = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(Path(EMBEDDED_MODEL).parents[2])}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True)
    os.close(theirs)

    def read_until(end: bytes, after: bytes = b"") -> bytes:
        shown = b""
        while not (after in shown and shown.endswith(end)):
            shown += os.read(ours, 4096)  # fails once the program has ended
        return shown

    try:
        read_until(b"> ")
        os.write(ours, f"{QUESTION}\n".encode())
        shown = read_until(b"> ", after=b"</answer>")
        os.write(ours, b"\x04")
        assert process.wait(600) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"<answer>" in shown


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([MODEL, "--prompt", "x", "--prompt", "y"], "give several problems with --file"),
        (["nowhere", "--prompt", "x"], "nowhere is not a directory"),
        ([".", "--prompt", "x"], "has no config.json"),
        ([MODEL, "--prompt", "x", "--step", "3"], "is a model directory without a checkpoint of step 3"),
        ([MODEL, "--prompt", "x", "--step", "last"], "must be a step, best or latest"),
        ([MODEL, "--prompt", "x", "--score"], "is a model directory"),
        ([MODEL, "--prompt", "x", "--file", "rows.jsonl"], "is allowed; remove one of them"),
        ([MODEL, "--num-generations", "2"], "require --prompt or --file"),
        ([MODEL, "--prompt", "x", "--num-generations", "2"], "would be identical; add --inference-config standard"),
        ([MODEL, "--prompt", "x", "--inference-config", "greedy", "--top-k", "5"], "cannot be combined with top_k"),
        ([MODEL, "--prompt", "x", "--temperature", "0"], "temperature"),
        ([MODEL, "--prompt", " "], "must contain a problem"),
        ([MODEL, "--prompt", "x", "--raw", "--prompt-config", "plain"], "is allowed; remove one of them"),
        ([MODEL, "--prompt", "x", "--prompt-config", "none"], "prompt must be one of"),
        ([MODEL, "--file", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        ([MODEL, "--file", "bad.jsonl"], "bad.jsonl, line 2 must be a JSON object"),
        ([MODEL, "--file", "empty.jsonl"], "empty.jsonl must contain at least one row"),
        ([MODEL, "--file", "roles.jsonl"], "roles.jsonl, line 1 must be a JSON object"),
        ([MODEL, "--prompt", "x", "--output", "no/where.jsonl"], "--output no/where.jsonl cannot be written"),
    ],
)
def test_a_wrong_option_is_explained(
    arguments: Sequence[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x"}\n{"answer": 3}\n')
    (tmp_path / "empty.jsonl").write_text("\n")
    write_rows(tmp_path / "roles.jsonl", {"messages": [{"role": "admin", "content": "x"}]})
    ran = invoke(*arguments)
    assert ran.exit_code == 2, ran.output
    assert told in " ".join(ran.stderr.split())
    assert not (tmp_path / "no").exists()
