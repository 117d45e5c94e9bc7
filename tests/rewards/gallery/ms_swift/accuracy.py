"""The documented plugin: a class, and its entry in `orms`."""

import re

from swift.rewards import ORM, orms


class Accuracy(ORM):
    def __call__(self, completions, solution, **kwargs) -> list[float]:
        rewards = []
        for completion, truth in zip(completions, solution):
            found = re.search(r"<answer>(.*?)</answer>", completion, re.S)
            wanted = re.search(r"<answer>(.*?)</answer>", truth, re.S)
            rewards.append(1.0 if found and wanted and found[1].strip() == wanted[1].strip() else 0.0)
        return rewards


orms["mine"] = Accuracy
