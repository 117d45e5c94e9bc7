"""`agent-tunix data show`: rows with their prompts as text and tokens, offline and without JAX."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.config.compose import compose_overrides
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_model_directory


def show(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(main, ["data", "show", "--json", *arguments])
    assert result.exit_code == status, result.output
    return json.loads(result.output)


def test_a_prompt_is_shown_as_the_text_of_its_tokens() -> None:
    prompts = show("--rows", "3", "model=tiny_tools", "environment=calculator")
    assert [prompt["row"] for prompt in prompts] == [1, 2, 3]
    for prompt in prompts:
        assert "".join(piece for _, piece in prompt["tokens"]) == prompt["text"]
        assert prompt["num_tokens"] == len(prompt["tokens"])
        assert prompt["tools"] == ["calculator"]
        assert "calculator(" in prompt["text"]
        assert prompt["columns"]["question"] in prompt["text"]
    tokenizer = Tokenizer(find_model_directory(compose_overrides(["model=tiny_tools"]).model))
    assert [number for number, _ in prompts[0]["tokens"]] == tokenizer.encode(prompts[0]["text"])


def test_the_text_of_reset_and_the_tools_of_a_row_are_part_of_it(tmp_path: Path) -> None:
    assert "1" in show("environment=guess_number", "model=tiny_tools")[0]["text"]
    tool = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
    row = {"question": [{"role": "user", "content": "Go."}], "answer": "1", "tools": [tool]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (prompt,) = show(f"data.path={tmp_path / 'rows.jsonl'}", "model=tiny_tools")
    assert (prompt["tools"], "fetch" in prompt["text"]) == (["fetch"], True)


def test_a_row_without_a_prompt_says_why(tmp_path: Path) -> None:
    row = {"question": [{"role": "user", "content": "Go."}], "answer": "1", "tools": "a saw"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (prompt,) = show(f"data.path={tmp_path / 'rows.jsonl'}", status=1)
    assert "tools" in prompt["problem"]


def test_an_unknown_loss_is_refused() -> None:
    result = CliRunner().invoke(main, ["data", "show", "grpo.loss=gpro"])
    assert result.exit_code == 2, result.output
    assert "grpo.loss must be one of" in result.stderr


def test_the_text_for_a_person_has_the_same_parts() -> None:
    result = CliRunner().invoke(main, ["data", "show", "--split", "test"])
    assert result.exit_code == 0
    assert {"row 1", "tools: none", "prompt"} <= set(result.output.splitlines())


@pytest.mark.slow
def test_it_loads_no_jax() -> None:
    code = (
        "import sys; from agent_tunix.cli import main\n"
        "try: main(['data', 'show', 'environment=calculator', 'model=tiny_tools'])\n"
        "except SystemExit: pass\n"
        "assert not {'jax', 'flax', 'tunix'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
