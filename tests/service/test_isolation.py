"""A server that cannot lock uploaded code in says so, and is asked again elsewhere."""

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.service.trying import cannot_be_tried


def test_code_that_cannot_be_isolated_is_the_servers_fault_and_not_the_callers() -> None:
    refused = cannot_be_tried(SandboxUnavailableError("no Landlock"))
    assert (refused.status, refused.code) == (503, "sandbox_unavailable")
    assert "no Landlock" in str(refused)
    assert cannot_be_tried(RewardError("no column")).status == 400
