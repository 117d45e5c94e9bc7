"""The configuration of a single run composed once, where Hydra 1.3 composes it twice.

A first time it does so to learn whether `hydra.mode` asks for a sweep, which takes a fifth of a second of every start.
Nothing but an argument about Hydra itself, or a configuration of the user's own, can ask for one: `conf/` does not.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra._internal.hydra import Hydra

from agent_tunix.config import compose

# Of Hydra's own keys, what says where a run goes and no more.
_PLACE = "hydra.run.dir="


@contextlib.contextmanager
def composed_once(arguments: Sequence[str]) -> Iterator[None]:
    """Within, Hydra takes a run to be meant, where nothing can say otherwise.

    Args:
        arguments: Of the command line.
    """
    if _may_sweep(arguments):
        yield
        return
    find_out = Hydra.get_mode
    # What it finds out itself where no configuration says it.
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = find_out  # type: ignore[method-assign]


def own_conf() -> Path | None:
    """The user's own `conf/`, in the working directory; None where there is none."""
    own = Path.cwd() / "conf"
    return own if own.is_dir() and own.resolve() != compose.find_conf_directory() else None


def _may_sweep(arguments: Sequence[str]) -> bool:
    about_hydra = any(
        argument.startswith("-") or ("hydra" in argument and not argument.startswith(_PLACE)) for argument in arguments
    )
    return about_hydra or own_conf() is not None
