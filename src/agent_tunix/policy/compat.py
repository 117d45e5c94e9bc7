"""Every repair of Tunix 0.1.7, in one place.

`tests/training/test_tunix_dangers.py` holds the defects that the product avoids, so that a test fails once upstream has
mended one. pyproject.toml pins the version, and `check_version` checks it.
"""

import importlib.metadata

TUNIX_VERSION = "0.1.7"


def check_version() -> None:
    """Refuse any other Tunix than the one the product was built for.

    Raises:
        ImportError: Another version is installed.
    """
    installed = importlib.metadata.version("google-tunix")
    if installed != TUNIX_VERSION:
        raise ImportError(
            f"agent_tunix needs google-tunix {TUNIX_VERSION}, found {installed};"
            f" pip install google-tunix=={TUNIX_VERSION}"
        )
