"""Workers for uploaded code, and for built-ins whose library may run a model's text.

They are isolated, or plain if isolation is impossible and the user allows it.
"""

import logging
from dataclasses import replace

from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, problems, require_isolation
from agent_tunix.rewards.execution.local import LocalExecutor
from agent_tunix.rewards.execution.settings import ExecutionSettings

logger = logging.getLogger("agent_tunix.rewards")


def make_sandboxed_executor(settings: ExecutionSettings, what: str = "uploaded code") -> LocalExecutor:
    """Start workers for one upload or built-in and no other, whatever `settings.execution` says.

    Raises:
        SandboxUnavailableError: Workers cannot be isolated here, and `settings` does not allow them to run otherwise.
    """
    if settings.allow_unsandboxed and (found := problems()):
        logger.warning(
            "%s runs with all permissions of this user, as allowed, because this machine cannot isolate it (%s)",
            what,
            "; ".join(found),
        )
        return LocalExecutor(replace(settings, execution="process", sandboxed=False))
    require_isolation(what, REMEDY_FOR_UPLOADS)
    return LocalExecutor(replace(settings, execution="process", sandboxed=True))
