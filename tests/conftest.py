"""Settings that every test and every process that it starts shares."""

import os
import tempfile
from pathlib import Path

# Programs compiled by one test serve all others, in whatever process, and the user's own cache stays as it was. What
# makes a program is its shapes and its constants, the number of steps among them: runs that only differ in data, seed
# or reward share theirs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "agent_tunix_tests" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# What a reward or a page of the docs keeps for the next run is kept out of the user's home.
os.environ.setdefault("AGENT_TUNIX_HOME", str(Path(tempfile.gettempdir()) / "agent_tunix_tests" / "home"))
