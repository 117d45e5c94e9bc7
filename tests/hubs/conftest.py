"""Every test here may use the hub on the loopback."""

from tests.hubs.fixtures import hub

__all__ = ["hub"]
