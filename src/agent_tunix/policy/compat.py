"""The Tunix version that the product supports.

`tests/training/test_tunix_dangers.py` holds the defects of Tunix that the product avoids; a test fails once upstream
has fixed one. pyproject.toml pins the version, and `check_version` checks it.
"""

import importlib.metadata

TUNIX_VERSION = "0.1.7"


def check_version() -> None:
    """Refuse any Tunix version other than the supported one.

    Raises:
        ImportError: Another version is installed.
    """
    installed = importlib.metadata.version("google-tunix")
    if installed != TUNIX_VERSION:
        raise ImportError(
            f"agent_tunix needs google-tunix {TUNIX_VERSION}, found {installed};"
            f" pip install google-tunix=={TUNIX_VERSION}"
        )
