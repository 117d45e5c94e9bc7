"""Every test here may use the hubs on the loopback."""

from tests.hubs.fixtures import hub, kaggle

__all__ = ["hub", "kaggle"]
