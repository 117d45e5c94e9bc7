"""Check the overrides of a training command as the program does before it loads JAX, and train nothing."""

import sys
from pathlib import Path

from agent_tunix.cli.hydra_programs import find_own_conf
from agent_tunix.config.compose import compose_overrides
from agent_tunix.training.preflight import preflight

find_own_conf()
preflight(compose_overrides([argument for argument in sys.argv[1:] if not argument.startswith("hydra.")]), Path.cwd())
