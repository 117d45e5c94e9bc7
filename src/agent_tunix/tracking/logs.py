"""The run's log: everything in `train.log`, what a person should see on the console."""

import contextlib
import logging
import sys
from pathlib import Path
from typing import TextIO

from agent_tunix.closing import Closing
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.visible_text import SafeFormatter, escape_hidden

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class RunLog(Closing):
    """Sends the messages of the package to a file and to the console, until it is closed.

    The file has every message from `level` up; the console leaves out debugging, which is a trace of every score.

    Args:
        path: The file, appended to.
        level: `training.log_level`: debug, info, warning or error.
        console: Whether the console hears anything.

    Raises:
        ConfigError: There is no such level.
        RunDirectoryError: The file cannot be opened.
    """

    def __init__(self, path: Path, level: str, *, console: bool = True) -> None:
        if level not in LEVELS:
            raise ConfigError(
                f"training.log_level must be one of {', '.join(LEVELS)}, not {level!r}", code="unknown_log_level"
            )
        try:
            file = _FileHandler(path, encoding="utf-8")
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be opened: {error.strerror}; correct the permissions or choose another hydra.run.dir",
                code="unwritable_log",
            ) from error
        file.setFormatter(SafeFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        self._handlers: list[logging.Handler] = [file]
        if console:
            shown = _ConsoleHandler()
            shown.setFormatter(_ConsoleFormatter())
            shown.setLevel(max(LEVELS[level], logging.INFO))
            self._handlers.append(shown)
        self._logger = logging.getLogger("agent_tunix")
        self._level_before, self._propagate_before = self._logger.level, self._logger.propagate
        # absl, which Tunix brings, puts a handler of its own on the root.
        self._logger.propagate = False
        self._logger.setLevel(LEVELS[level])
        for handler in self._handlers:
            self._logger.addHandler(handler)

    def close(self) -> None:
        """Leave the loggers as they were; another call does nothing."""
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            with contextlib.suppress(OSError):  # A full disk, of which the handler has told already.
                handler.close()
        if self._handlers:
            self._logger.setLevel(self._level_before)
            self._logger.propagate = self._propagate_before
        self._handlers = []


class _ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the time, so that a live display keeps its place below."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _ConsoleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = escape_hidden(super().format(record))
        return message if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {message}"


class _FileHandler(logging.FileHandler):
    """Gives up, saying so once, when the file cannot be written; logging's own way is a traceback a message."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.setLevel(logging.CRITICAL + 1)
            print(f"warning: {self.baseFilename} is not written any more: {error.strerror}", file=sys.stderr)
        else:
            super().handleError(record)
