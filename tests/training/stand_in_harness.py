"""Stand-in for the program `lm_eval`: it reads the same options, calls the same routes, and writes the same file."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

_PROMPT = [5, 6, 7, 8]


def ask(arguments: dict[str, Any], **values: Any) -> str:
    """Return a completion of a prompt of token ids."""
    request = urllib.request.Request(
        arguments["base_url"],
        json.dumps({"model": arguments["model"], "prompt": _PROMPT, "max_tokens": 8, **values}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def value_of(text: str) -> float:
    """Return a number that another text would not have."""
    return float(sum(place * ord(character) for place, character in enumerate(text, 1)))


def main() -> None:
    """Take a task: `toy`, `late` (which fails after step 0), `broken`, or `endless` (which leaves a process)."""
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    arguments, task, place = json.loads(options["--model_args"]), options["--tasks"], Path(options["--output_path"])
    if task == "broken" or (task == "late" and place.parent.name != "step_0"):
        sys.exit(f"no task {task}")
    if task == "endless":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (place / "child").write_text(str(child.pid))
        time.sleep(600)
    values = {
        "greedy,none": value_of(ask(arguments, temperature=0)),
        "sampled,strict": value_of(ask(arguments) + ask(arguments)),
        "limit,none": float(options.get("--limit", 0)),
        "greedy_stderr,none": "N/A",
    }
    (place / "policy").mkdir()
    (place / "policy" / "results_1.json").write_text(json.dumps({"results": {task: {"alias": task, **values}}}))


if __name__ == "__main__":
    main()
