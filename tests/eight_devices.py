"""Programs that run in a process of their own, on eight virtual devices."""

import os
import subprocess
import sys
from pathlib import Path

EIGHT_DEVICES = "--xla_force_host_platform_device_count=8"


def run_on_eight_devices(module: str, directory: Path, *flags: str, **environment: str) -> str:
    """Run a module of these tests on a directory; return the last line that it prints."""
    flags = (EIGHT_DEVICES, os.environ["XLA_FLAGS"], *flags)
    done = subprocess.run(
        [sys.executable, "-m", module, str(directory)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.rpartition("\n")[0].rpartition("\n")[2]
