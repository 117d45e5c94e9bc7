"""Runs on several processes: connecting them, agreeing on values, and ending together.

Every process runs the same program with the same configuration. So all processes hold the same prompts, scores and
advantages, and start the same computations in the same order. They differ in their devices, in the completions that
they score, and in who writes files. `joining.py` connects the processes, `group.py` lets them exchange values, and
`loss.py` ends them when one is lost. `training/score_sharing.py` divides the scoring of a batch. Importing this package
does not load JAX.
"""

from agent_tunix.distributed.group import Processes, here
from agent_tunix.distributed.joining import join

__all__ = ["Processes", "here", "join"]
