"""Named components, and the total that trains.

`mixing` tells how a batch goes through a mixture and `totals` how a total follows from what the components said;
`schedules`, `gates` and `routes` tell what a component's `weight`, `requires` and `when` may say.
"""

from agent_tunix.rewards.mixture.mixing import ON_FAILURE, Component, Mixture
from agent_tunix.rewards.mixture.totals import FAILURES, totals_that_train

__all__ = ["FAILURES", "ON_FAILURE", "Component", "Mixture", "totals_that_train"]
