"""Settings come from `args`, where they are given."""

from swift.rewards import ORM, orms


class Repetition(ORM):
    def __init__(self, args=None, **kwargs):
        super().__init__(args)
        self.size = getattr(args, "repetition_n_grams", 2)

    def __call__(self, completions, **kwargs):
        rewards = []
        for text in completions:
            words = text.split()
            grams = [tuple(words[i : i + self.size]) for i in range(len(words) - self.size + 1)]
            rewards.append(-(1 - len(set(grams)) / len(grams)) if grams else 0.0)
        return rewards


orms["mine"] = Repetition
