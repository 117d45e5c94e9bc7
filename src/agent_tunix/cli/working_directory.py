"""Additions of the working directory: choices of a `conf/` of its own, and keys of a `.env`."""

import os
import re
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from agent_tunix.config import compose
from agent_tunix.errors import ConfigError

# A `.env` may set keys only. A downloaded directory may contain one, and other variables decide whose code runs or
# where keys are sent.
_KEYS = re.compile(r".*_(KEY|TOKEN|SECRET|PASSWORD|USERNAME)|WANDB_(ENTITY|MODE|PROJECT)")


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


def find_own_conf() -> None:
    """Add the `conf/` of the working directory to everything that Hydra composes."""
    Plugins.instance().register(OwnConf)


def load_env_file() -> None:
    """Set the variables of `.env` in the working directory that the environment does not set.

    Raises:
        ConfigError: The file cannot be read, or sets variables other than keys.
    """
    if Path(".env").is_file():
        from dotenv import dotenv_values

        try:
            variables = dotenv_values(Path(".env"), interpolate=False)
        except (UnicodeDecodeError, OSError) as error:
            raise ConfigError(
                f".env must contain lines NAME=VALUE in UTF-8, but: {error}; correct or move it",
                code="invalid_env_file",
            ) from error
        if malformed := sorted(name for name in variables if not _KEYS.fullmatch(name)):
            raise ConfigError(
                ".env may only set variables that end in _KEY, _TOKEN, _SECRET, _PASSWORD or _USERNAME, but sets "
                f"{', '.join(malformed)}; remove it there, and export it in your shell if you need it",
                code="refused_in_env",
            )
        for name, value in variables.items():
            if value is not None:
                os.environ.setdefault(name, value)
