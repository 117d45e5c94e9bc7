"""Ctrl-C while a program of this package still imports modules: it ends at once, without a traceback.

`agent_tunix` imports this module first, so it imports little itself. In any other program, such as a notebook, it
changes nothing.
"""

import signal
import sys

# `-m` is the name while Python looks up the module of `python -m agent_tunix`.
_PROGRAMS = ("agent-tunix", "run_training.py", "evaluate.py", "-m")


def begin() -> None:
    """Let Ctrl-C end this process, if it is a program of this package."""
    is_program = (sys.argv or [""])[0].rpartition("/")[2] in _PROGRAMS
    if is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def end() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, as commands expect that clean up after themselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


begin()
