"""The product in Python: `train`, `sft`, `prefer` and `open_run`, which do what the commands of the same names do.

    run = agent_tunix.train("training.num_batches=20", reward=my_reward, data=rows)
    run.metrics

Importing this package loads neither JAX nor Hydra.
"""

from agent_tunix.api.run import Run, open_run
from agent_tunix.api.start import prefer, sft, train
from agent_tunix.tracking.callbacks import Callback, TrainingState

__all__ = ["Callback", "Run", "TrainingState", "open_run", "prefer", "sft", "train"]
