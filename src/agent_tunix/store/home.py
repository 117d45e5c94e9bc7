"""Where the service keeps its state on this machine."""

import os
from pathlib import Path

from agent_tunix.errors import StoreError

HOME_VARIABLE = "AGENT_TUNIX_HOME"
DATABASE_VARIABLE = "AGENT_TUNIX_DATABASE_URL"


def home() -> Path:
    """`AGENT_TUNIX_HOME`, by default `~/.agent_tunix`; absolute, and not necessarily there yet."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".agent_tunix").expanduser().absolute()


def make_home() -> Path:
    """The home, made if need be, for its owner alone.

    Raises:
        StoreError: It cannot be made.
    """
    directory = home()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the directory of the store cannot be made ({error}); set {HOME_VARIABLE} to one that can be written",
            code="unwritable_location",
        ) from error
    return directory


def database_url() -> str:
    """`AGENT_TUNIX_DATABASE_URL`, by default the SQLite file `store.db` in the home."""
    return os.environ.get(DATABASE_VARIABLE) or f"sqlite:///{home() / 'store.db'}"
