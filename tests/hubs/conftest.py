"""Every test here may use the hubs on the loopback."""

from tests.hubs.fixtures import dataset_hub, hub, kaggle

__all__ = ["dataset_hub", "hub", "kaggle"]
