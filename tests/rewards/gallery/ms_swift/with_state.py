"""The training's state and the conversation."""

from swift.rewards import ORM, orms


class WithState(ORM):
    def __call__(self, completions, answer, trainer_state, messages=None, **kwargs):
        share = trainer_state.global_step / max(trainer_state.max_steps, 1)
        last = [conversation[-1]["content"] for conversation in messages]
        return [
            share + float(truth in text) + float(text == end) for text, truth, end in zip(completions, answer, last)
        ]


orms["mine"] = WithState
