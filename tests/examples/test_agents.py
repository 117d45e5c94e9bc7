import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main

AGENT = Path(__file__).parents[2] / "examples" / "agents" / "calculator.mjs"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_agent_in_javascript_uses_its_calculator() -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "47 * 86 + 12"}}\n</tool_call>'
    row = json.dumps({"question": "What is 47 * 86 + 12?", "answer": "4054"})
    arguments = ["check", f"node {AGENT}", "--command", "--row", row, "--timeout", "60", "--json"]
    result = CliRunner().invoke(main, ["environments", *arguments, "--reply", call, "--reply", "<answer>4054</answer>"])
    findings = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
    assert findings["calls"]["detail"].startswith("2 calls")
    assert findings["result"] == {"check": "result", "status": "passed", "detail": "1"}
