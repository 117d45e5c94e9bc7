"""Entry point of `python -m agent_tunix`, which equals `agent-tunix`."""

from agent_tunix.cli import main

main(prog_name="agent-tunix")
