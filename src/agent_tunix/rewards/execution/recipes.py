"""Origin of a reward, and its recipe for other processes."""

from dataclasses import replace

from agent_tunix.rewards import sources
from agent_tunix.rewards.builtin import BUILTINS
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Reward


def is_builtin(reward: Reward) -> bool:
    """Return True if the reward comes with this package."""
    return getattr(reward, "is_builtin", False) is True


def stays_here(reward: Reward) -> bool:
    """Return True for a built-in whose calls end soon, so that they need no worker process."""
    recipe = getattr(reward, "recipe", None)
    builtin = BUILTINS.get(recipe.spec) if isinstance(recipe, RewardRecipe) else None
    return is_builtin(reward) and not (builtin is not None and builtin.may_hang)


def recipe_of(reward: Reward) -> RewardRecipe | None:
    """Return the recipe of a reward, with the user's modules as they are now; None if only the object is known."""
    known = getattr(reward, "recipe", None)
    if not isinstance(known, RewardRecipe):
        return None
    is_users = known.uploaded is None and not library_of(known)  # others must not see the user's files
    return replace(known, sources=sources.snapshot()) if is_users else known


def is_uploaded(recipe: RewardRecipe | None) -> bool:
    """Return True if the reward runs uploaded code, which is isolated whatever `rewards.execution` says."""
    return recipe is not None and recipe.uploaded is not None


def needs_sandbox(reward: Reward, recipe: RewardRecipe) -> bool:
    """Return True for a built-in whose library may run text that a model wrote."""
    return is_builtin(reward) and bool(library_of(recipe))


def library_of(recipe: RewardRecipe) -> str:
    """Return the package for which a built-in is isolated; "" for other rewards."""
    builtin = BUILTINS.get(recipe.spec)
    return builtin.library if builtin is not None and recipe.uploaded is None else ""
