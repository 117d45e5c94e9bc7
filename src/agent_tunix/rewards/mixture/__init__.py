"""Mixtures: named components and the total that trains.

`mixing` computes a batch, and `totals` combines the components' scores. `schedules`, `gates` and `routes` define the
values of a component's `weight`, `requires` and `when`.
"""

from agent_tunix.rewards.mixture.mixing import ON_FAILURE, Component, Mixture
from agent_tunix.rewards.mixture.totals import FAILURES, totals_that_train

__all__ = ["FAILURES", "ON_FAILURE", "Component", "Mixture", "totals_that_train"]
