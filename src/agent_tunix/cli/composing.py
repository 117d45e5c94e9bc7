"""The `conf/` of the working directory."""

from pathlib import Path

from agent_tunix.config import compose


def own_conf() -> Path | None:
    """Return the user's own `conf/` in the working directory, or None if there is none."""
    own = Path.cwd() / "conf"
    return own if own.is_dir() and own.resolve() != compose.find_conf_directory() else None
