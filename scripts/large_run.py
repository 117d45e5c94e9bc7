"""A run of a million completions, and a walk through its pages that measures their cost to the server."""

import json
import re
import resource
import time
from pathlib import Path
from typing import Any

from tests.service.inspector.support import showing, visiting
from tests.tracking.rollouts.many import write_many

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config

STEPS = 2000
ROWS = 20_000
COMPONENTS = ("total", "correct", "tags", "brevity", "overlong")
LEAVES = ("mean", "std", "min", "max", "p10", "p50", "p90", "weight")
PAGES_WALKED = 40


def write_large_run(root: Path) -> int:
    """Write the run and return its number of completions."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(to_yaml(Config()), encoding="utf-8")
    with (root / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(1, ROWS + 1):
            row = {f"rewards/{name}/{leaf}": 0.5 for name in COMPONENTS for leaf in LEAVES}
            file.write(json.dumps({"step": step} | row) + "\n")
    return STEPS * write_many(root / "rollouts", STEPS)


def look_into_large_run(directory: Path) -> dict[str, Any]:
    """Open every kind of page of the run.

    Returns:
        `rollouts`; `walked`, the rollouts on the pages walked; `slowest_page_ms`; and `memory_mb`, the server's
        additional memory.

    Raises:
        AssertionError: A page was not answered, or has no next page.
    """
    (directory / "store").mkdir()
    num_rollouts = write_large_run(directory / "runs" / "large")
    slowest = 0.0
    with showing(directory / "store", directory / "runs") as server, visiting(server) as alice:
        memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        def ask(path: str) -> str:
            nonlocal slowest
            started = time.perf_counter()
            answer = alice.get(path)
            slowest = max(slowest, time.perf_counter() - started)
            assert answer.status_code == 200, answer.text
            return answer.text

        found = re.search(r'href="(/runs/run_[a-z2-7]{24})" data-item', ask("/runs"))
        assert found is not None
        run = found[1]
        while not json.loads(ask(f"{run}/curves.json"))["is_whole"]:
            pass
        middle = STEPS // 2
        paths = ["", f"/rollouts?step={STEPS}&sort=-reward", "/rollouts?q=written+by+nobody", "/rollouts?min_reward=99"]
        paths += [f"/steps/{middle}/groups/7", f"/compare?step=1&other={STEPS}"]
        for path in paths:
            ask(run + path)
        path, walked = f"{run}/rollouts?sort=-length", 0
        for _ in range(PAGES_WALKED):
            page = ask(path)
            walked += page.count('<article class="rollout"')
            following = re.search(r'href="([^"]+)" rel="next"', page)
            assert following is not None
            path = following[1].replace("&amp;", "&")
        more_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb
    return {
        "rollouts": num_rollouts,
        "walked": walked,
        "slowest_page_ms": round(1000 * slowest),
        "memory_mb": round(more_kb / 1024),
    }
