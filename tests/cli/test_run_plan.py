import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.config.compose import find_conf_directory

MODELS = sorted(file.stem for file in (find_conf_directory() / "model").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plan_says_memory_time_and_cost() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "h100", "--price-per-hour", "3", "model=qwen3_4b"])
    assert ran.exit_code == 0, ran.output
    for told in ("1 × h100 (80.0 GB", "throughout", "while sampling", "while updating", "fits", "tokens/s", "cost "):
        assert told in ran.stdout


def warnings_of(*overrides: str) -> list[str]:
    ran = CliRunner().invoke(main, ["plan", "--device", "h100", "--json", *overrides])
    return list(json.loads(ran.stdout)["warnings"])


def test_lengths_of_the_tiny_model_are_warned_of_with_a_real_one() -> None:
    ran = CliRunner().invoke(
        main, ["plan", "--device", "h100", "model=qwen3_0_6b", "generation.max_generation_steps=32"]
    )
    assert "warning: generation.max_generation_steps=32 suits the tiny model" in ran.stdout
    assert any(
        "max_prompt_length=48" in told for told in warnings_of("model=qwen3_4b", "generation.max_prompt_length=48")
    )
    assert warnings_of("model=qwen3_4b", "+experiment=lora_math") == []
    assert warnings_of("generation.max_generation_steps=32") == []


def test_a_path_of_its_own_names_the_model() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "h100", "model.path=hf://Qwen/Qwen3-0.6B"])
    assert ran.stdout.startswith("qwen3 Qwen3-0.6B, computed in bfloat16\n")


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in MODELS if name != "qwen3"])
def test_every_shipped_model_can_be_planned_without_a_download(model: str) -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "h200", "--json", f"model={model}"])
    assert ran.exit_code == 0, ran.output


def test_the_parts_add_up_in_json() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "v5e", "--json", "--price-per-hour", "2", "model=qwen3_0_6b"])
    data = json.loads(ran.stdout)
    memory = data["memory"]
    assert memory["held"] == sum(memory[part] for part in ("weights", "adapter", "reference", "optimizer"))
    assert memory["total"] == memory["held"] + max(memory["while_sampling"], memory["while_updating"])
    assert data["step"]["seconds"] == pytest.approx(sum(p["seconds"] for p in data["step"]["phases"].values()))
    assert data["cost"] == pytest.approx(2 * data["run_seconds"] / 3600)


def test_the_memory_and_the_time_of_a_teacher_are_printed() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "h200", "model=qwen3_0_6b", "grpo.teacher=hf://Qwen/Qwen3-8B"])
    assert ran.exit_code == 0, ran.output
    assert re.search(r"^    teacher +16\.38 GB$", ran.stdout, re.MULTILINE)
    assert re.search(r"^  teacher .* TFLOP ", ran.stdout, re.MULTILINE)


def test_the_memory_of_a_judge_that_the_run_samples_is_printed() -> None:
    judge = "{tone: {function: judge, args: {model: gemma3_12b, quantization: nf4, rubric: 'Is it clear?'}}}"
    ran = CliRunner().invoke(
        main, ["plan", "--device", "v5e", "--devices", "8", "model=gemma3_1b", f"training.reward_function={judge}"]
    )
    assert ran.exit_code == 0, ran.output
    assert re.search(r"^    judges +\d\.\d\d GB$", ran.stdout, re.MULTILINE)
    assert re.search(r"^  while judging +\d\.\d\d GB$", ran.stdout, re.MULTILINE)
    assert "while judging" not in CliRunner().invoke(main, ["plan", "--device", "v5e"]).stdout


def test_a_run_that_does_not_fit_ends_with_status_1() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "t4", "model=qwen3_32b"])
    assert ran.exit_code == 1, ran.output
    assert "does not fit" in ran.stdout


def planned(*arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(CliRunner().invoke(main, ["plan", "--json", *arguments]).stdout)
    return data


def test_the_mesh_that_is_given_divides_the_weights() -> None:
    one, four = (
        planned("--device", "h100", "model=qwen3_8b", *mesh)["memory"]["held"]
        for mesh in ([], ["model.mesh_shape=[1,4,1]"])
    )
    assert four < 0.3 * one


def test_auto_divides_what_one_device_cannot_hold_and_copies_what_it_can() -> None:
    small, large = (
        planned("--device", "a100-40", "--devices", "8", f"model={model}")["mesh_shape"]
        for model in ("qwen3_8b", "qwen3_32b")
    )
    assert small == [8, 1, 1]
    assert large[0] < 8


def test_a_device_can_be_described_by_its_figures() -> None:
    ran = CliRunner().invoke(
        main, ["plan", "--device-memory", "48GiB", "--device-tflops", "181", "--device-bandwidth", "864", "--json"]
    )
    assert json.loads(ran.stdout)["device"] == {
        "name": "device",
        "memory_bytes": 48 * 2**30,
        "flops": 181e12,
        "bandwidth": 864e9,
        "link": None,
        "layer_s": 0.0,
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--device", "h9"], "not 'h9'"),
        (["--device-memory", "80zb"], "MB, MiB, GB"),
        (["--device-memory", "0GB"], "above 0"),
        (["--utilisation", "1.5"], "1.5"),
        (["--devices", "3", "model.mesh_shape=[2,1]"], "--devices must be 2"),
        (["model.path=hf://some/body"], "hf://some/body requires a known size"),
        (["model.path=nowhere"], "nowhere"),
        (["training.batchsize=3"], "did you mean training.batch_size?"),
        (["beta=0.04"], "ConfigError: there is no key beta; did you mean grpo.beta?\n"),
        (["model=llama3"], "tiny_tools, not 'llama3'\n"),
        (["--device", "A100"], "did you mean a100-40 or a100-80?"),
        (["grpo.num_generations=1"], "grpo.num_generations"),
        (["grpo.loss=gpro"], "grpo.loss must be one of grpo, gspo"),
        (["grpo.advantage_scaling=grup"], "did you mean group?"),
    ],
)
def test_a_wrong_option_is_explained(arguments: list[str], told: str) -> None:
    ran = CliRunner().invoke(main, ["plan", *arguments])
    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr


def test_judges_of_evaluations_take_memory_too() -> None:
    ran = CliRunner().invoke(main, ["plan", "--device", "h100", "model=gemma3_1b", "evaluation.correct=judged_math"])
    assert ran.exit_code == 0, ran.output
    assert {"judges", "while judging"} <= {line.rpartition("  ")[0].strip() for line in ran.stdout.splitlines()}


@pytest.mark.slow
def test_planning_loads_no_jax() -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom agent_tunix.cli import main\n"
        "assert CliRunner().invoke(main, ['plan', '--device', 'h100', 'model=qwen3_8b']).exit_code == 0\n"
        "assert not {'jax', 'flax', 'tunix', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
