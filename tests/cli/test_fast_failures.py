"""Mistakes that can be found before a run are refused at once: status 2, a short message, no traceback and no JAX.

Commands run where importing JAX is an error, so that none can do it unnoticed; further mistakes are tried in this
process, which is quicker.
"""

import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_tunix import __version__
from agent_tunix.cli import hydra_programs

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def without_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which JAX cannot be imported, and the commands are this environment's."""
    directory = tmp_path_factory.mktemp("no_jax")
    for name in ("jax", "flax", "tunix", "tensorflow", "transformers"):
        (directory / f"{name}.py").write_text(f"raise AssertionError('{name} was imported')\n")
    search_path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(search_path), "PATH": programs}
    return {name: value for name, value in environment.items() if not name.startswith("HYDRA_")}


Run = Callable[..., Result]


@pytest.fixture
def run(without_jax: dict[str, str], tmp_path: Path) -> Run:
    def run_command(*command: str, **variables: str) -> Result:
        result = subprocess.run(
            command, cwd=tmp_path, env=without_jax | variables, capture_output=True, text=True, timeout=600
        )
        return Result(result.returncode, result.stdout, result.stderr)

    return run_command


@pytest.fixture
def train(run: Run) -> Run:
    return lambda *overrides, **variables: run(sys.executable, str(ROOT / "run_training.py"), *overrides, **variables)


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Result]]:
    """Runs a command in this process, which is quicker; what it does to logging is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    # Hydra sets logging up anew, which closes every handler there is; absl's, which comes with JAX where another test
    # has imported it, would close pytest's standard error with it.
    monkeypatch.setattr(logging.config, "_clearExistingHandlers", lambda: None)
    handlers, level = [*logging.root.handlers], logging.root.level

    def run_command(program: Callable[[Sequence[str]], None], *overrides: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            program(overrides)
        printed = capsys.readouterr()
        return Result(int(ended.value.code or 0), printed.out, printed.err)

    yield run_command
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def assert_refused(result: Result, *words: str) -> None:
    assert result.status == 2, result.err
    assert "Traceback" not in result.err
    assert len(result.err) < 1500
    for word in words:
        assert word in result.err


def test_an_unknown_reward_is_refused_before_jax(train: Run) -> None:
    assert_refused(train("training.reward_function=mth"), "'mth'", "did you mean 'math'?")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.source=jsonl", "data.path=nowhere"], ["data.path=nowhere", "No such file"]),
        (
            ["training.batch_size=12", "training.micro_batch_size=8"],
            ["must be divisible", "training.batch_size=16 or training.micro_batch_size=6"],
        ),
        (
            ["training.reward_function=needy.py:needy"],
            ["`difficulty`", "which is not provided", "rewards.args.needy.difficulty"],
        ),
        (
            ["grpo.num_generations=1", "generation.temperature=0", "scheduler.kind=cosin"],
            ["grpo.num_generations", "generation.temperature", "did you mean cosine?"],  # all of them together
        ),
        (["+experiment=broken"], ["broken.yaml"]),
        (["training.batchsize=3"], ["there is no key training.batchsize", "did you mean training.batch_size?"]),
        (["+training.batchsize=3"], ["no key training.batchsize", "did you mean training.batch_size?"]),
        (["data=gsm8"], ["data must be one of", "gsm8k", "'gsm8'"]),
        (["data.path=däta.jsonl"], ["needs its own quotes: 'data.path=\"däta.jsonl\"'"]),
        (["hydra.run.dir=/dev/null/run"], ["hydra.run.dir=DIR"]),
        (["--cfg", "job", "--multirun"], ["Only one of"]),
    ],
)
def test_a_mistake_is_explained_without_a_traceback(
    overrides: list[str], words: list[str], in_process: Run, tmp_path: Path
) -> None:
    (tmp_path / "needy.py").write_text("def needy(response, difficulty):\n    return 1.0\n")
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "broken.yaml").write_text("# @package _global_\nseed: [1\n")
    assert_refused(in_process(hydra_programs.train, *overrides), *words)


@pytest.mark.slow
def test_hydra_full_error_shows_the_traceback_of_a_refusal(train: Run) -> None:
    result = train("training.batchsize=3", HYDRA_FULL_ERROR="1")
    assert result.status != 0
    assert "Traceback" in result.err


def test_a_platform_that_is_not_there_is_told_without_a_traceback(
    in_process: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    def fail() -> list[jax.Device]:
        raise RuntimeError("Unable to initialize backend 'tpu'")

    monkeypatch.setattr(jax, "devices", fail)
    result = in_process(hydra_programs.train, "tracking.progress=none")
    assert_refused(result, "distributed.platform=auto", "Unable to initialize backend", "agent_tunix[tpu]")


def test_ctrl_c_before_the_run_listens_ends_without_a_traceback(
    in_process: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cfg: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hydra_programs, "_train", stop)
    result = in_process(hydra_programs.train)
    assert result.status == 130
    assert "training.resume=true" in result.err
    assert "Traceback" not in result.err


def test_a_closed_output_ends_a_program_without_a_message(without_jax: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "evaluate.py"), "--help"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=without_jax, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def test_a_defect_of_ours_keeps_its_traceback(in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(hydra_programs, "load_env_file", fail)
    result = in_process(hydra_programs.train)
    assert result.status == 1
    assert "Traceback" in result.err
    assert "a defect" in result.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.lora_rank=8", "--cfg", "job"], ["lora_rank: 8", "batch_size: 16"]),
        (["--help"], ["reward_function", "data:"]),
        (["--info", "defaults-tree"], ["training: default", "data: word_problems"]),
    ],
)
def test_a_question_is_answered_without_jax(arguments: list[str], words: list[str], train: Run, tmp_path: Path) -> None:
    (tmp_path / "conf" / "reward").mkdir(parents=True)  # of no consequence
    result = train(*arguments)
    assert (result.status, result.err) == (0, "")
    for word in words:
        assert word in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["num_passes=2"], ["checkpoint_dir is required"]),
        (["checkpoint_dir=nowhere"], ["nowhere", "config.yaml", "directory of a run"]),
        (["checkpoint_dri=run"], ["did you mean checkpoint_dir?"]),
        (["step=last"], ["step", "last", "best"]),
    ],
)
def test_evaluate_refuses(arguments: list[str], words: list[str], in_process: Run) -> None:
    assert_refused(in_process(hydra_programs.evaluate, *arguments), *words)


def test_evaluate_refuses_a_range_that_the_run_does_not_allow(in_process: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    result = in_process(hydra_programs.evaluate, "checkpoint_dir=.", "num_passes=0", "inference_config=gredy")
    assert_refused(result, "evaluation.num_passes must be at least 1, not 0", "did you mean greedy?")


@pytest.mark.slow
def test_the_programs_start_without_jax(run: Run) -> None:
    assert_refused(run(sys.executable, str(ROOT / "evaluate.py")), "checkpoint_dir is required")
    listed = run("agent-tunix", "--help")
    assert listed.status == 0
    for command in ("train", "evaluate", "verify-resume"):
        assert command in listed.out
    assert run("agent-tunix", "--version").out == f"agent-tunix, version {__version__}\n"
    assert_refused(run("agent-tunix", "trian"), "No such command 'trian'")
    result = run(sys.executable, "-m", "agent_tunix", "train", "training.reward_function=mth")
    assert_refused(result, "did you mean 'math'?")


@pytest.mark.slow
def test_conf_of_the_working_directory_adds_choices_and_replaces_none_of_ours(run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "with space, (ünï) [цвет]='x'" / "conf"
    for name, content in (
        ("reward/careful", "components:\n  correct: {function: math}\n"),
        ("experiment/mine", "# @package _global_\nseed: 7\n"),
        ("grpo/default", "beta: 0.5\n"),
    ):
        (conf / name).parent.mkdir(parents=True)
        (conf / f"{name}.yaml").write_text(content)
    program = f"import os, runpy; os.chdir({str(conf.parent)!r}); runpy.run_module('agent_tunix', run_name='__main__')"
    result = run(sys.executable, "-c", program, "train", "--cfg", "job", "reward=careful", "+experiment=mine")
    assert result.status == 0, result.err
    for said in ("seed: 7", "function: math", "beta: 0.02"):
        assert said in result.out


def test_an_env_file_that_is_not_text_is_refused(in_process: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"NAME=\xff\xfe\n")
    assert_refused(in_process(hydra_programs.train), ".env", "UTF-8")


# Says what it was asked to train; docs/sweeps.md has sweeps that train.
TRAINS_NOTHING = """
import sys, types
from agent_tunix.cli import hydra_programs
stand_in = sys.modules["agent_tunix.training.train"] = types.ModuleType("agent_tunix.training.train")
stand_in.train = lambda checked, root, overrides, callbacks: print("trained", *overrides)
hydra_programs.train(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_job_that_failed_and_names_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINS_NOTHING, "--multirun", "training.reward_function=mth,math"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 2, result.stderr
    assert "job 0 of the sweep, training.reward_function=mth" in result.stderr
    assert "Traceback" not in result.stderr
    assert "trained training.reward_function=math" in result.stdout.splitlines()
