"""Origin of a reward, and its recipe for other processes."""

from agent_tunix.rewards.calling import Reward
from agent_tunix.rewards.recipe import RewardRecipe


def is_builtin(reward: Reward) -> bool:
    """Return True if the reward comes with this package."""
    return getattr(reward, "is_builtin", False) is True


def recipe_of(reward: Reward) -> RewardRecipe | None:
    """Return the recipe of a reward; None if only the object itself is known."""
    known = getattr(reward, "recipe", None)
    return known if isinstance(known, RewardRecipe) else None


def is_uploaded(recipe: RewardRecipe | None) -> bool:
    """Return True if the reward runs uploaded code, which is isolated whatever `rewards.execution` says."""
    return recipe is not None and recipe.uploaded is not None
