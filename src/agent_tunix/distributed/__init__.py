"""A run on several processes: how they find each other, agree, and end together.

Every process runs the same program on the same configuration, so that it holds the same prompts, scores and advantages
and asks the devices for the same computation in the same order; what is different is which devices, which completions
to score, and who writes. `joining` connects the processes, `group` has them agree, `loss` says what became of a run
whose process is gone, `sharing` divides the scoring of a batch. Importing this loads no JAX.
"""

from agent_tunix.distributed.group import Processes, here
from agent_tunix.distributed.joining import join

__all__ = ["Processes", "here", "join"]
