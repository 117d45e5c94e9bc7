import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from click.testing import CliRunner

from agent_tunix.cli import main

SERVE = "from agent_tunix.cli import main; main()"
QUESTIONS = ["What is 3 + 4?", "What is 20 + 7?", "Tom has 3 apples and buys 4 more. How many does he have?"]


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["tiny", "--host", "0.0.0.0"], "requires a key"),
        (["no/such/directory"], "is not a directory"),
        (["tiny", "--step", "4"], "--step requires a run"),
        (["tiny", "--adapter", "a=/no/such/directory"], "NAME=DIR"),
        (["tiny", "--adapter", "a"], "NAME=DIR"),
        (["tiny", "--adapter", "a=.", "--adapter", "a=."], "each name once"),
    ],
)
def test_what_cannot_be_served_is_refused_without_jax(arguments: list[str], fact: str) -> None:
    before = set(sys.modules)
    result = CliRunner().invoke(main, ["serve-policy", *arguments])
    assert result.exit_code == 2, result.output
    assert fact in result.stderr
    assert not {"jax", "fastapi"} & (set(sys.modules) - before)


def test_a_port_in_use_is_told_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("agent_tunix.serving.policy_server.open_service", load)
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = CliRunner().invoke(main, ["serve-policy", "tiny", "--port", str(other.getsockname()[1])])
    assert result.exit_code == 2, result.output
    assert "is in use" in result.stderr


@pytest.mark.slow
def test_the_embedded_model_replies_as_generate_does(tmp_path: Path) -> None:
    expected = {}
    for question in QUESTIONS:
        result = CliRunner().invoke(main, ["generate", str(_directory()), "--prompt", question])
        expected[question] = result.stdout.rstrip("\n")
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve-policy", "tiny", "--port", "0", "--api-key", "sesame"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        found = re.search(r"OPENAI_BASE_URL=(\S+)\)", process.stdout.readline())
        assert found
        with openai.OpenAI(base_url=found[1], api_key="sesame") as client, ThreadPoolExecutor() as threads:

            def ask(question: str) -> str | None:
                reply = client.chat.completions.create(
                    model="policy", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64
                )
                return reply.choices[0].message.content

            assert dict(zip(QUESTIONS, threads.map(ask, QUESTIONS), strict=True)) == expected
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def _directory() -> Path:
    from agent_tunix.policy.files.directory import EMBEDDED_MODEL

    return EMBEDDED_MODEL
