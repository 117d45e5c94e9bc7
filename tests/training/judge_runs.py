"""Whole runs with a judge whose model they sample; `test_judge_models.py` makes them on 8 virtual devices.

python -m tests.training.judge_runs DIRECTORY
"""

import json
import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import jax

from agent_tunix.config.compose import compose_overrides
from agent_tunix.rewards import Sample, Score
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.faults import MalformedVerdict
from agent_tunix.rewards.judges.grading import RubricJudge
from agent_tunix.rewards.judges.prompts import JudgeQuestion
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.train import train
from tests.small_run import SMALL_RUN

JUDGE: dict[str, Any] = {
    "model": "tiny",
    "rubric": "Is it good?",
    "cache": False,
    "max_tokens": 24,
    "max_prompt_tokens": 512,
    "max_concurrency": 8,
}
COMMON = (
    *SMALL_RUN,
    "training.save_interval_steps=2",
    "training.max_checkpoints_to_keep=2",
    "tracking.progress=none",
    "evaluation.num_samples=0",
    "rewards.max_failure_rate=1.0",
)


async def judge_by_number(self: RubricJudge, asker: Any, sample: Sample) -> Score:
    """Score a completion by the number in the reply, because the tiny model writes numbers but no verdicts."""

    def read(reply: str) -> float:
        numbers = re.findall(r"\d+", reply)
        if not numbers:
            raise MalformedVerdict(f"there is no number in {reply!r}")
        return min(int(numbers[-1]), 100) / 100

    content = f"{sample.prompt} {sample.response}"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    return Score(await asker.ask(JudgeQuestion(messages, None, read), Receipt()))


class Compilations(logging.Handler):
    """Counts the programs of `generate` that are compiled in the thread of judges' models."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        is_of_judge = (record.threadName or "").startswith("judge-model")
        self.count += is_of_judge and record.getMessage().startswith("Compiling jit(generate)")


def make_run(root: Path, *overrides: str) -> None:
    """Make one run, or the rest of one."""
    config = compose_overrides([*COMMON, *overrides])
    config.training.reward_function = {"number": {"function": "judge", "args": JUDGE}}
    train(preflight(config, root.parent), root)


def main() -> None:
    """Make them all, and print what they loaded and compiled."""
    directory = Path(sys.argv[1])
    logging.getLogger("agent_tunix").setLevel(logging.WARNING)
    compilations = Compilations()
    logging.getLogger("jax").addHandler(compilations)
    jax.config.update("jax_log_compiles", True)  # type: ignore[no-untyped-call]
    RubricJudge._judge_one = judge_by_number  # type: ignore[method-assign]
    make_run(directory / "whole")
    num_programs = compilations.count
    shutil.copytree(directory / "whole", directory / "resumed")
    shutil.rmtree(directory / "resumed" / "checkpoints" / "step_000004")
    make_run(directory / "resumed", "training.resume=true")
    make_run(directory / "alone", "model.mesh_shape=[1,1,1]", "training.num_batches=1")
    print(json.dumps({"programs": num_programs, "loaded": sorted({"torch", "openai"} & sys.modules.keys())}))


if __name__ == "__main__":
    main()
