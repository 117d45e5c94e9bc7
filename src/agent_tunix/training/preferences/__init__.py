"""Preference tuning, `agent-tunix prefer`: pairs of responses, their losses, and the objective that trains on them."""
