"""Environments of every form with a fault of choice, `WHAT:WHERE`, such as `hang:tool`."""

import os
import subprocess
import sys
from typing import Any


def act(fault: str, where: str) -> Any:
    what, _, place = fault.partition(":")
    if place != where:
        return f"{os.getpid()}"
    if what == "hang":
        while True:
            pass
    if what == "exit":
        os._exit(3)
    if what == "raise":
        raise RuntimeError("broken")
    if what == "quit":
        sys.exit(4)
    if what == "memory":
        bytearray(8 * 2**30)
    if what == "child":
        subprocess.Popen(["sleep", "3600"])
    return {"flood": "x" * 10_000_000, "nothing": None}.get(what, "done")


class Faulty:
    """An environment in the manner of TRL."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        act(fault, "init")

    def reset(self, fault: str = "", **row: Any) -> str:
        self.fault = fault or self.fault
        act(self.fault, "reset")
        return "ready"

    def work(self, number: int = 0) -> Any:
        """Work."""
        print("working")
        return act(self.fault, "tool")

    def get_reward(self) -> float:
        act(self.fault, "score")
        return 1.0

    def close(self) -> None:
        act(self.fault, "close")


class FaultyBenchmax:
    """The same with the members of a benchmax environment."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}

    def dataset_preprocess(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": "Work.", "init_rollout_args": {"fault": row.get("fault", "")}}

    async def list_tools(self) -> list[dict[str, Any]]:
        return [{"name": "work", "description": "Work.", "input_schema": {"type": "object", "properties": {}}}]

    async def init_rollout(self, rollout_id: str, fault: str) -> None:
        self.faults[rollout_id] = fault
        act(fault, "reset")

    async def run_tool(self, rollout_id: str, tool_name: str) -> Any:
        return act(self.faults[rollout_id], "tool")

    async def compute_reward(self, rollout_id: str, **kwargs: Any) -> dict[str, float]:
        act(self.faults[rollout_id], "score")
        return {"right": 1.0}

    async def release_rollout(self, rollout_id: str) -> None:
        act(self.faults.pop(rollout_id), "close")


class FaultyText:
    """The same with `reset` and `step`."""

    def reset(self, fault: str = "") -> str:
        self.fault = fault
        act(fault, "reset")
        return "ready"

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return act(self.fault, "tool"), 0.0, action == "done", False, {}

    def close(self) -> None:
        act(self.fault, "close")


def work(fault: str = "") -> Any:
    """Work."""
    return act(fault, "tool")
