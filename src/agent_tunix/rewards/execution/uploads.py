"""Workers for uploaded code: isolated ones, or plain ones if isolation is impossible and the user allows it."""

import logging
from dataclasses import replace

from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, problems, require_isolation
from agent_tunix.rewards.execution.local import LocalExecutor
from agent_tunix.rewards.execution.settings import ExecutionSettings

logger = logging.getLogger("agent_tunix.rewards")


def make_uploads_executor(settings: ExecutionSettings) -> LocalExecutor:
    """Start workers for one upload and no other, whatever `settings.execution` says.

    Raises:
        SandboxUnavailableError: Workers cannot be isolated here, and `settings` does not allow them to run otherwise.
    """
    if settings.allow_unsandboxed and (found := problems()):
        logger.warning(
            "uploaded code runs with all permissions of this user, as allowed, because this machine cannot isolate "
            "it (%s)",
            "; ".join(found),
        )
        return LocalExecutor(replace(settings, execution="process", sandboxed=False))
    require_isolation("uploaded code", REMEDY_FOR_UPLOADS)
    return LocalExecutor(replace(settings, execution="process", sandboxed=True))
