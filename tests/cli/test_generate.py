"""`agent-tunix generate` on a run of the tiny model and on its directory: prompt, file, conversation, refusals."""

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.training.support import small_run

from agent_tunix.cli import main
from agent_tunix.config.compose import to_yaml
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.tracking import StoredRun
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train

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
    ran = invoke(MODEL, "--prompt", QUESTION)
    assert ran.exit_code == 0, ran.output
    assert "<answer>" in ran.stdout


def test_a_completion_that_is_cut_says_so_beside_it() -> None:
    ran = invoke(MODEL, "--prompt", QUESTION, "--max-new-tokens", 2)
    assert ran.exit_code == 0
    assert ran.stderr == "(cut after 2 tokens)\n"


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
    assert invoke(MODEL, "--file", rows, *sampled).stdout == invoke(MODEL, "--file", rows, *sampled, "--seed", 0).stdout
    assert rows_of(invoke(MODEL, "--file", rows, *sampled, "--seed", 1)) != found


def test_the_output_is_written_whole(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", {"question": QUESTION})
    ran = invoke(MODEL, "--file", rows, "--output", tmp_path / "out.jsonl")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert json.loads((tmp_path / "out.jsonl").read_text())["prompt"] == QUESTION
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out.jsonl"}


def test_a_run_completes_problems_as_its_evaluation_does(run: Path, tmp_path: Path) -> None:
    """The same weights, prompts and greedy sampling; the reward's scores are those of the built-in."""
    from agent_tunix.config.compose import from_yaml
    from agent_tunix.data import load_evaluation

    held_out = load_evaluation(from_yaml(run / "config.yaml")).examples
    rows = write_rows(tmp_path / "rows.jsonl", *(dict(example.columns) for example in held_out))
    found = rows_of(invoke(run, "--file", rows, "--score"))
    accuracy = StoredRun(run).rows[-1]["eval/accuracy"]
    shown = {shot["prompt"] for shot in from_yaml(run / "config.yaml").prompt.few_shot}
    scores = [row["score"] for row in found if row["prompt"] not in shown]
    assert sum(score == 1.0 for score in scores) / len(scores) == pytest.approx(accuracy)
    assert all(row["components"] == {"math": row["score"]} and row["outcome"] == "scored" for row in found)


def test_a_runs_config_holds_the_examples_that_were_drawn(run: Path) -> None:
    config = StoredRun(run).config
    assert len(config.prompt.few_shot) == 2
    assert config.prompt.num_few_shot == 0


def test_a_run_shows_the_model_what_it_was_trained_on(run: Path) -> None:
    first = next(StoredRun(run).rollouts.iterate())
    assert [message["role"] for message in first.samples[0].messages[:-1]] == [
        *["system", "user", "assistant", "user", "assistant", "user"]
    ]
    assert first.samples[0].messages[-2]["content"].endswith(" Go on.")


@pytest.mark.parametrize("step", ["0", "2", "latest"])
def test_a_step_may_be_chosen(run: Path, step: str) -> None:
    assert invoke(run, "--prompt", QUESTION, "--step", step).exit_code == 0


def test_scores_of_a_prompt_are_told_beside_it(run: Path) -> None:
    ran = invoke(run, "--prompt", QUESTION, "--score")
    assert ran.exit_code == 2
    assert "requires the parameter `answer`" in ran.stderr


def test_a_batch_function_of_ones_own_scores_as_in_training(run: Path, tmp_path: Path) -> None:
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


def test_lines_are_a_conversation() -> None:
    ran = invoke(MODEL, typed=f"{QUESTION}\n\nWhat is 2 plus 2?\n")
    assert ran.exit_code == 0, ran.output
    assert len(ran.stdout.splitlines()) == 2
    alone = invoke(MODEL, typed=f"{QUESTION}\n")
    assert ran.stdout.startswith(alone.stdout)


def test_each_answer_is_part_of_the_next_prompt(run: Path) -> None:
    from agent_tunix.training.generation import Conversation, Generator, choose_sampling, find_source

    generator = Generator(
        find_source(run, None), choose_sampling(None, None, None, None, None, 8), num_generations=1, seed=0
    )
    talk = Conversation(generator)
    first, second = (talk.answer(line).sample for line in (QUESTION, "And 2 plus 2?"))
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["content"] for message in second.messages[-2:-1]] == ["And 2 plus 2? Go on."]
    assert sum(message["role"] == "system" for message in second.messages) == 1


def test_a_person_on_a_terminal_ends_a_conversation_with_control_d() -> None:
    """A real pseudo-terminal: the prompt is shown, a line is answered, end of file ends it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agent_tunix", "generate", MODEL]
    environment = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(Path(EMBEDDED_MODEL).parents[2])}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True)
    os.close(theirs)
    try:
        shown = read_until(ours, b"> ")
        os.write(ours, f"{QUESTION}\n".encode())
        shown += read_until(ours, b"> ", after=b"</answer>")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"<answer>" in shown


def read_until(terminal: int, end: bytes, after: bytes = b"", limit_s: float = 120.0) -> bytes:
    """What is shown until it ends so."""
    shown = b""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            shown += os.read(terminal, 4096)
        if after in shown and shown.endswith(end):
            return shown
    raise AssertionError(f"{end!r} was not shown, but {shown!r}")


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere", "--prompt", "x"], "nowhere is not a directory"),
        ([".", "--prompt", "x"], "has no config.json"),
        ([MODEL, "--prompt", "x", "--step", "3"], "is no run, and so has no checkpoint of step 3"),
        ([MODEL, "--prompt", "x", "--step", "last"], "neither a step nor best nor latest"),
        ([MODEL, "--prompt", "x", "--score"], "--score takes the reward of a run"),
        ([MODEL, "--prompt", "x", "--file", "rows.jsonl"], "give one of them"),
        ([MODEL, "--num-generations", "2"], "need a --prompt or a --file"),
        ([MODEL, "--prompt", "x", "--num-generations", "2"], "would all be the same; add --inference-config standard"),
        ([MODEL, "--prompt", "x", "--inference-config", "greedy", "--top-k", "5"], "heeds no top_k"),
        ([MODEL, "--prompt", "x", "--temperature", "0"], "temperature"),
        ([MODEL, "--prompt", " "], "must hold a problem"),
        ([MODEL, "--file", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        ([MODEL, "--file", "bad.jsonl"], "bad.jsonl, line 2 must be a JSON object"),
        ([MODEL, "--file", "empty.jsonl"], "empty.jsonl is empty"),
        ([MODEL, "--file", "roles.jsonl"], "row 1: a role other than system, user, assistant, tool"),
        ([MODEL, "--prompt", "x", "--output", "no/where.jsonl"], "--output no/where.jsonl cannot be written"),
    ],
)
def test_what_cannot_be_used_is_told(
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


def test_a_step_without_a_checkpoint_names_those_there_are(run: Path) -> None:
    ran = invoke(run, "--prompt", QUESTION, "--step", 3)
    assert ran.exit_code == 2
    assert "[2, 4]" in ran.stderr


def test_a_run_without_a_model_of_its_own_directory_is_told_from_a_model_in_it(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.copytree(EMBEDDED_MODEL, tmp_path / "run" / "exported")
    ran = invoke(tmp_path / "run" / "exported", "--prompt", QUESTION, "--score")
    assert "is a model directory" in ran.stderr
