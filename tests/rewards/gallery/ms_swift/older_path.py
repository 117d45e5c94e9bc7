"""The import of older versions, and parts that a reward does not need."""

from swift.plugin import ORM, orms
from swift.plugin.multi_turn import MultiTurnScheduler, multi_turns
from swift.utils import get_logger

logger = get_logger()


class Scheduler(MultiTurnScheduler):
    def step(self, infer_request, response_choice, current_turn):
        raise NotImplementedError


multi_turns["mine"] = Scheduler


class Format(ORM):
    def __call__(self, completions, **kwargs):
        logger.info("%d completions", len(completions))
        return [1.0 if text.startswith("<") else 0.0 for text in completions]


orms["mine"] = Format
