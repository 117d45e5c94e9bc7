"""The run's log: all messages in `train.log`, and those for people on the console."""

import contextlib
import logging
import sys
from pathlib import Path
from typing import TextIO

from agent_tunix.closing import Closing
from agent_tunix.errors import RunDirectoryError
from agent_tunix.visible_text import SafeFormatter, escape_hidden

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class RunLog(Closing):
    """The run's log, which sends the package's messages to a file and to the console until closed.

    The file has every message from `level` up. The console leaves out debug messages, which trace every score.

    Args:
        path: The log file; messages are appended.
        level: `training.log_level`: debug, info, warning or error.
        console: True to log to the console as well.

    Raises:
        RunDirectoryError: The file cannot be opened.
    """

    def __init__(self, path: Path, level: str, *, console: bool = True) -> None:
        try:
            file = _FileHandler(path, encoding="utf-8")
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be opened: {error.strerror}; correct the permissions or choose another hydra.run.dir",
                code="unwritable_directory",
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
        # absl, a dependency of Tunix, adds its own handler to the root logger.
        self._logger.propagate = False
        self._logger.setLevel(LEVELS[level])
        for handler in self._handlers:
            self._logger.addHandler(handler)

    def close(self) -> None:
        """Restore the logger's settings; another call does nothing."""
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            with contextlib.suppress(OSError):  # the disk is full, which the handler has already reported
                handler.close()
        if self._handlers:
            self._logger.setLevel(self._level_before)
            self._logger.propagate = self._propagate_before
        self._handlers = []


class _ConsoleHandler(logging.StreamHandler[TextIO]):
    """A handler that writes to the current standard error, so that a live display stays below the messages."""

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
    """A file handler that reports a failed write once and stops; the default is a traceback for every message."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.setLevel(logging.CRITICAL + 1)
            print(f"warning: {self.baseFilename} is no longer written: {error.strerror}", file=sys.stderr)
        else:
            super().handleError(record)
