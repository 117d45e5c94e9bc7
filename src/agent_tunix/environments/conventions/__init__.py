"""Conventions in which users write environments, each an adapter that opens episodes.

`class`: public methods are tools, as in TRL; `benchmax`: a `BaseEnv`; `text`: `reset` and `step(action)`; `tools`:
plain functions. `detection` tells them apart, and `combined` makes several into one.
"""

from agent_tunix.environments.conventions.base import EnvironmentAdapter
from agent_tunix.environments.conventions.combined import CombinedAdapter
from agent_tunix.environments.conventions.detection import adapt_environment, detect_convention
from agent_tunix.environments.conventions.functions import ToolsEnvironment

__all__ = ["CombinedAdapter", "EnvironmentAdapter", "ToolsEnvironment", "adapt_environment", "detect_convention"]
