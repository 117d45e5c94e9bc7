"""Of a reward: whether it came with the package, and what another process needs to make it again."""

from agent_tunix.rewards.calling import Reward
from agent_tunix.rewards.recipe import RewardRecipe


def is_builtin(reward: Reward) -> bool:
    """Whether it came with the package."""
    return getattr(reward, "is_builtin", False) is True


def recipe_of(reward: Reward) -> RewardRecipe | None:
    """How to make it again; None where nothing but the object itself is known."""
    known = getattr(reward, "recipe", None)
    return known if isinstance(known, RewardRecipe) else None


def is_uploaded(recipe: RewardRecipe | None) -> bool:
    """Whether it makes code run that others have uploaded, which `rewards.execution` cannot let out of isolation."""
    return recipe is not None and recipe.uploaded is not None
