"""Accuracy of a served run by lm-evaluation-harness and inspect_ai, beside `agent-tunix evaluate`, on the same rows.

    python benchmarks/harnesses.py RUN --harness-python PATH [--rows 100]

The run is evaluated with greedy decoding, then served by `agent-tunix serve-policy`, and both harnesses evaluate it
unmodified: `lm_eval --model local-completions` gets the rendered prompts as text, `inspect eval --model
openai-api/local/policy` the messages. They compare the text between the answer tags with the reference. The exit status
is 1 unless all three accuracies are equal. The interpreter of `--harness-python` needs `lm_eval[api]` and `inspect_ai`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serving_peers import Server, serving

from agent_tunix.config.episodes import turn_tokens
from agent_tunix.config.schema import Config
from agent_tunix.data import PromptEncoder, load_evaluation
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.runs.found_run import find_run

ANSWER = r"<answer>\s*(.*?)\s*</answer>"
LM_EVAL_TASK = {
    "task": "rows",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{prompt}}",
    "doc_to_target": "{{answer}}",
    "filter_list": [
        {
            "name": "answer",
            "filter": [
                {"function": "regex", "regex_pattern": ANSWER, "group_select": -1},
                {"function": "take_first"},
            ],
        }
    ],
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
INSPECT_TASK = f"""
import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate

KINDS = {{"system": ChatMessageSystem, "user": ChatMessageUser}}


@task
def rows(path: str) -> Task:
    samples = []
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        messages = [KINDS[message["role"]](content=message["content"]) for message in row["messages"]]
        samples.append(Sample(input=messages, target=row["answer"]))
    return Task(dataset=samples, solver=generate(), scorer=pattern({ANSWER!r}))
"""


def write_rows(config: Config, path: Path, count: int) -> None:
    """Write the first held-out rows: their messages, the rendered prompt, and the reference."""
    encoder = PromptEncoder(tokenizer := Tokenizer(find_model_directory(config.model), config.prompt), config.prompt)
    with path.open("w") as file:
        for example in load_evaluation(config).examples[:count]:
            messages = encoder.messages(example)
            row = {"messages": messages, "prompt": tokenizer.render_chat(messages)}
            file.write(json.dumps({**row, "answer": str(example.columns["answer"])}) + "\n")


def run(command: list[str], scratch: Path, **environment: str) -> None:
    """Run a command; end this program with its output if it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=scratch, env={**os.environ, "HF_HOME": str(scratch), **environment}
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def evaluate(root: Path, rows: int, scratch: Path) -> float:
    """Return the accuracy of `agent-tunix evaluate`."""
    results = scratch / "ours.json"
    command = ["evaluate", f"checkpoint_dir={root}", f"num_samples={rows}", f"output={results}"]
    run([sys.executable, "-m", "agent_tunix", *command], scratch)
    return float(find_key(json.loads(results.read_text()), "eval/accuracy"))


def ask_lm_eval(python: str, server: Server, rows: Path, tokens: int, scratch: Path) -> float:
    """Return the accuracy that lm-evaluation-harness finds."""
    generation = {"until": ["<|im_end|>"], "max_gen_toks": tokens, "do_sample": False, "temperature": 0.0}
    task = {**LM_EVAL_TASK, "dataset_kwargs": {"data_files": {"test": str(rows)}}, "generation_kwargs": generation}
    (scratch / "rows.yaml").write_text(json.dumps(task))  # JSON is YAML
    options = f"model={server.model},base_url={server.url}/completions,num_concurrent=16,tokenized_requests=False"
    command = ["--model", "local-completions", "--model_args", f"{options},tokenizer_backend=none"]
    command += ["--tasks", "rows", "--include_path", str(scratch), "--output_path", str(scratch / "lm_eval")]
    run([python, "-m", "lm_eval", *command], scratch, OPENAI_API_KEY="none")
    (results,) = (scratch / "lm_eval").rglob("results_*.json")
    return float(find_key(json.loads(results.read_text()), "exact_match,answer"))


def ask_inspect(python: str, server: Server, rows: Path, tokens: int, scratch: Path) -> float:
    """Return the accuracy that inspect_ai finds."""
    (scratch / "rows.py").write_text(INSPECT_TASK)
    command = ["eval", "rows.py", "--model", f"openai-api/local/{server.model}", "-T", f"path={rows}"]
    command += ["--temperature", "0", "--max-tokens", str(tokens), "--max-connections", "16", "--display", "none"]
    command += ["--log-format", "json", "--log-dir", str(scratch / "inspect")]
    program = str(Path(python).with_name("inspect"))
    run([program, *command], scratch, LOCAL_API_KEY="none", LOCAL_BASE_URL=server.url)
    (log,) = (scratch / "inspect").glob("*.json")
    return float(find_key(json.loads(log.read_text())["results"], "accuracy")["value"])


def find_key(value: Any, key: str) -> Any:
    """Return the value of a key at any depth; None if there is none."""
    if isinstance(value, dict) and key in value:
        return value[key]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := find_key(one, key)) is not None), None)


def main() -> int:
    """Evaluate, print and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--harness-python", default=sys.executable, help="with lm_eval[api] and inspect_ai")
    parser.add_argument("--rows", type=int, default=100)
    arguments = parser.parse_args()
    root = arguments.run.absolute()
    config = find_run(root, "RUN").config
    with tempfile.TemporaryDirectory() as name:
        scratch, rows = Path(name), Path(name, "rows.jsonl")
        write_rows(config, rows, arguments.rows)
        accuracies = {"agent-tunix evaluate": evaluate(root, arguments.rows, scratch)}
        command = [sys.executable, "-m", "agent_tunix", "serve-policy", str(root)]
        with serving("serve-policy", command, scratch / "server.log") as server:
            given = (arguments.harness_python, server, rows, turn_tokens(config), scratch)
            accuracies["lm_eval, local-completions"] = ask_lm_eval(*given)
            accuracies["inspect_ai, openai-api"] = ask_inspect(*given)
    for harness, accuracy in accuracies.items():
        print(f"{harness:28} {accuracy:.4f} of {arguments.rows} rows")
    return 0 if len({round(accuracy * arguments.rows) for accuracy in accuracies.values()}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
