"""Additions of the working directory: choices of a `conf/` of its own, and variables of a `.env`."""

import functools
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from agent_tunix.config import compose
from agent_tunix.errors import ConfigError


def own_conf() -> Path | None:
    """Return the user's own `conf/` in the working directory, or None if there is none."""
    own = Path.cwd() / "conf"
    return own if own.is_dir() and own.resolve() != compose.find_conf_directory() else None


class OwnConf(SearchPathPlugin):
    """Hydra plugin that adds the working directory's `conf/` after ours, so that it adds choices and replaces none."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the directory if it exists."""
        if (own := own_conf()) is not None:
            search_path.append("working directory", f"file://{own}")


@functools.cache
def find_own_conf() -> None:
    """Add the `conf/` of the working directory to everything that Hydra composes."""
    Plugins.instance().register(OwnConf)


def load_env_file() -> None:
    """Set the variables of `.env` in the working directory that the environment does not set.

    Raises:
        ConfigError: The file cannot be read.
    """
    if Path(".env").is_file():
        from dotenv import load_dotenv

        try:
            load_dotenv(Path(".env"))
        except (UnicodeDecodeError, OSError) as error:
            raise ConfigError(
                f".env must contain lines NAME=VALUE in UTF-8, but: {error}; correct or move it",
                code="invalid_env_file",
            ) from error
