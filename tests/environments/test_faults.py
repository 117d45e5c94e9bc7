"""The table of faults, whole for one form of environment and in part for the others; nothing is left running."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import (
    CallOutcome,
    EnvironmentRecipe,
    EpisodeResult,
    StopReason,
    ToolCall,
    ToolCallFormat,
    render_calls,
    run_episode,
)
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
from tests.environments.support import script
from tests.environments.test_tool_calls import MALFORMED
from tests.rewards.execution.leftovers import check_nothing_left, take_stock

pytestmark = pytest.mark.slow

DIRECTORY = Path(__file__).parent
FINISHED, DONE, ERROR = StopReason.FINISHED, StopReason.ENVIRONMENT_DONE, StopReason.ERROR
OK, TOO_LONG, TOOL_ERROR = CallOutcome.OK, CallOutcome.TOO_LONG, CallOutcome.TOOL_ERROR


@dataclass(frozen=True)
class Form:
    """A form of environment.

    Attributes:
        name: The environment of this form in `faulty.py`; None for tools alone.
        tool: The tool in `faulty.py`; None for none.
        has_tools: False if the environment reads the turns themselves.
        call_of: Makes the call that has a fault; None: the row says which.
        has_reset: True if an episode begins and ends in the user's code.
    """

    name: str | None = None
    tool: str | None = None
    has_tools: bool = True
    call_of: Callable[[str], ToolCall] | None = None
    has_reset: bool = True

    def open(self) -> EnvironmentSet:
        name = self.name and f"faulty.py:{self.name}"
        tools = [f"faulty.py:{self.tool}"] if self.tool else []
        is_mcp = name is None and not tools
        servers = [McpServer.read({"command": [sys.executable, "workshop.py"]}, DIRECTORY)] if is_mcp else []
        template = EnvironmentRecipe(None, working_directory=DIRECTORY)
        # A server that has died starts again within a call. Hanging ones are in test_mcp.py.
        limits = HostingLimits(timeout_s=30.0 if is_mcp else 3.0, num_workers=4)
        return EnvironmentSet(make_recipes(name, tools, template), limits, servers)


def of_function(fault: str) -> ToolCall:
    return ToolCall("work", {"fault": fault})


def of_server(fault: str) -> ToolCall:
    return ToolCall({"raise:tool": "crash", "exit:tool": "exit"}.get(fault, "nothing"), {})


FORMS = {
    "class": Form("Faulty"),
    "benchmax": Form("FaultyBenchmax"),
    "text": Form("FaultyText", has_tools=False),
    "function": Form(tool="work", call_of=of_function, has_reset=False),
    "mcp": Form(call_of=of_server, has_reset=False),
}
# Fault → end of the episode and outcome of its call, where there are tools; end of the episode where there are none.
# These leave the worker to other episodes …
HARMLESS: dict[str, tuple[StopReason, CallOutcome | None, StopReason]] = {
    "raise:tool": (FINISHED, TOOL_ERROR, ERROR),
    "flood:tool": (FINISHED, TOO_LONG, DONE),
    "nothing:tool": (FINISHED, OK, DONE),
    "child:tool": (FINISHED, OK, DONE),
    "raise:reset": (ERROR, None, ERROR),
    "raise:close": (ERROR, OK, ERROR),
}
# … and these end it.
DEADLY: dict[str, tuple[StopReason, CallOutcome | None, StopReason]] = {
    "hang:tool": (ERROR, None, ERROR),
    "exit:tool": (ERROR, None, ERROR),
    "hang:reset": (ERROR, None, ERROR),
    "exit:reset": (ERROR, None, ERROR),
    "hang:close": (ERROR, OK, ERROR),
}
# What the other forms are tried on: an error, a reply without content, and a process that must be replaced.
REPRESENTATIVE = ("raise:tool", "nothing:tool", "raise:reset", "hang:tool", "exit:tool")
NUM_MALFORMED = 3


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_fault_ends_in_its_outcome_and_nothing_is_left(form: Form) -> None:
    wrong: list[Any] = []

    def run(policy: Callable[[Any], str], row: dict[str, Any], call_format: str = "hermes") -> EpisodeResult:
        environment = environments.open(row)
        return run_episode(
            environment, policy, row, max_turns=4, max_result_chars=1000, call_format=ToolCallFormat(call_format)
        )

    def good_call(fault: str = "", call_format: str = "hermes") -> str:
        made = form.call_of(fault) if form.call_of else ToolCall("work", {})
        return render_calls([made], call_format) if form.has_tools else "work"

    def break_down(fault: str) -> None:
        result = run(script(good_call(fault), "done"), {"prompt": "Work.", "fault": fault})
        end, outcome, end_of_text = {**HARMLESS, **DEADLY}[fault]
        found = (result.stop_reason, *(call.result.outcome for call in result.calls))
        expected = (end, *([outcome] if outcome else [])) if form.has_tools else (end_of_text,)
        has_score = result.score is not None and result.score.value is not None
        longest = max((len(str(message["content"])) for message in result.messages), default=0)
        if found != expected or (result.error and has_score) or longest > 2000:
            wrong.append((fault, found, result.error))

    def write_malformed(place: int) -> None:
        call_format, text, _ = MALFORMED[place]
        result = run(script(text, good_call(call_format=call_format), "done"), {"prompt": "Work."}, call_format)
        outcomes = [call.result.outcome for call in result.calls]
        is_right = result.stop_reason is DONE
        if form.has_tools:
            is_right = result.stop_reason is FINISHED and CallOutcome.MALFORMED in outcomes and outcomes[-1] is OK
        if not is_right:
            wrong.append((text[:80], result.stop_reason, outcomes, result.error))

    def call_for_ever() -> None:
        result = run(lambda messages: good_call(), {"prompt": "Work."})
        if result.stop_reason is not StopReason.MAX_TURNS or result.num_turns != 4:
            wrong.append(("endless", result.stop_reason, result.error))

    is_whole = form is FORMS["class"]
    applies = [*HARMLESS, *DEADLY] if is_whole else REPRESENTATIVE
    faults = [fault for fault in applies if form.has_reset or fault.endswith(":tool")]
    if form is FORMS["mcp"]:
        faults.remove("hang:tool")
    malformed = range(len(MALFORMED) if is_whole else NUM_MALFORMED)
    before = take_stock()
    with form.open() as environments:
        environments.for_each(break_down, [fault for fault in faults if fault in HARMLESS] * 2)
        environments.for_each(write_malformed, malformed)
        call_for_ever()
        for fault in faults:
            if fault in DEADLY:
                break_down(fault)
        environments.for_each(break_down, ["nothing:tool"] * 4)  # all goes on
    assert wrong == []
    check_nothing_left(before)
