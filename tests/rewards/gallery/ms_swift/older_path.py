"""The import of older versions."""

from swift.plugin import ORM, orms
from swift.utils import get_logger

logger = None


class Format(ORM):
    def __call__(self, completions, **kwargs):
        global logger
        logger = logger or get_logger.__name__
        return [1.0 if text.startswith("<") else 0.0 for text in completions]


orms["mine"] = Format
