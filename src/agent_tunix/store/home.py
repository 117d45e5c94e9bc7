"""Location of the service's state on this machine."""

import os
from pathlib import Path

from agent_tunix.errors import StoreError

HOME_VARIABLE = "AGENT_TUNIX_HOME"
DATABASE_VARIABLE = "AGENT_TUNIX_DATABASE_URL"


def home() -> Path:
    """Return `AGENT_TUNIX_HOME`, by default `~/.agent_tunix`, as an absolute path that need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".agent_tunix").expanduser().absolute()


def make_home() -> Path:
    """Create the home directory if needed, accessible only to its owner, and return it.

    Raises:
        StoreError: It cannot be created.
    """
    directory = home()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the directory of the store cannot be created ({error}); set {HOME_VARIABLE} to a writable directory"
        ) from error
    return directory


def database_url() -> str:
    """Return `AGENT_TUNIX_DATABASE_URL`, by default that of the SQLite file `store.db` in the home directory."""
    return os.environ.get(DATABASE_VARIABLE) or f"sqlite:///{home() / 'store.db'}"


def shown_url(url: str) -> str:
    """Return a URL for people, without user, password and query, which may hold a password too."""
    scheme, separator, rest = url.partition("://")
    place, _, query = rest.partition("?")
    return f"{scheme}{separator}{'…' if '@' in query else place.rpartition('@')[2]}"
