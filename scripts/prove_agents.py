"""Proof that agents with random faults leave nothing behind: no process, no socket, no file and no row of tokens.

    python scripts/prove_agents.py [ROLLOUTS] [SEED]

A real server, real worker processes and a scripted policy. Each rollout has a fault by chance: it raises, hangs, exits,
is killed, floods the policy, calls with another key, never calls, leaves children, opens connections and reads nothing,
disconnects, or exceeds the context. Its outcome must be the one of its fault, and other rollouts must not notice.
"""

import collections
import gc
import os
import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_BATCH = 50
# Fault → the outcome that it must have. None is no fault.
OUTCOMES = {
    None: "ok",
    "calls another": "ok",
    "handles the context": "ok",
    "opens connections": "ok",
    "disconnects": "ok",
    "leaves children": "ok",
    "never calls": "no_calls",
    "floods with calls": "limit_exceeded",
    "exceeds the context": "limit_exceeded",
    "raises": "error",
    "exits": "exited",
    "is killed": "exited",
    "hangs": "timeout",
}


def prove_agents(num_rollouts: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Run agents with random faults; raise AssertionError if an outcome is wrong or something is left."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.serving.test_agent_sampler import ROW, Bench

    with (first := Bench()).pool:  # libraries keep something at their first use
        first.sample(ROW)
    del first
    gc.collect()
    generator, before = random.Random(seed), _left_behind()
    counts: collections.Counter[str] = collections.Counter()
    bench = Bench(max_concurrency=16, timeout_s=10.0)
    with bench.pool:
        for start in range(0, num_rollouts, _BATCH):
            # Healthy rollouts and those with a fault, side by side; few hang, because each takes its time limit.
            faults = generator.choices([*OUTCOMES], [8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.2], k=_BATCH)
            episodes = bench.sample(*({**ROW, "fault": fault} for fault in faults), num_generations=1).episodes
            assert episodes is not None
            for fault, episode in zip(faults, episodes, strict=True):
                assert episode.agent is not None
                outcome, is_scored = (
                    episode.agent.outcome,
                    episode.score is not None and episode.score.value is not None,
                )
                assert outcome == OUTCOMES[fault], f"{fault}: {outcome}: {episode.error}"
                assert is_scored == (outcome == "ok"), f"{fault}: {episode.score}"
                counts[outcome] += 1
            print(f"{start + _BATCH} rollouts: {dict(counts)}", flush=True)
    gc.collect()
    after = _left_behind()
    assert after == before, f"left behind: {before} before, {after} after"
    return dict(counts)


def _left_behind() -> dict[str, int]:
    """Return the numbers of what this process holds: children, descriptors, threads and temporary directories."""
    from agent_tunix.execution.workers import linux

    return {
        "processes": len(linux.children_of(os.getpid())),
        "sleeping": sum(b"987654" in _command(pid) for pid, _, _ in linux.processes()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "directories": len([*Path(tempfile.gettempdir()).glob("agent-tunix-agent-*")]),
    }


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    print(prove_agents(*map(int, sys.argv[1:])))
