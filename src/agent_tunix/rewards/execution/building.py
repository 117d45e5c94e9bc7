"""Construction of a reward from its recipe."""

import contextlib
import importlib

from agent_tunix.rewards.calling import Reward
from agent_tunix.rewards.conventions import CallSettings
from agent_tunix.rewards.execution.recipes import library_of
from agent_tunix.rewards.finding import Finder
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.uploaded import build_uploaded


def build_reward(recipe: RewardRecipe) -> Reward:
    """Build the reward of a recipe in this process; raise RewardError if the reward cannot be found or loaded here."""
    settings = CallSettings(recipe.convention, recipe.completions, recipe.reward_key)
    if recipe.uploaded is not None:
        reward: Reward = build_uploaded(recipe.uploaded, recipe.name, settings).bind(recipe.name, recipe.args)
    else:
        finder = Finder(recipe.reward_directories, recipe.working_directory, settings, recipe.modules)
        for module in recipe.modules:
            finder.import_module(module)
        if library := library_of(recipe):
            with contextlib.suppress(ImportError):  # the reward says what is missing
                importlib.import_module(library)  # now, because a call has less time
        reward = finder.function(recipe.spec).bind(recipe.name, recipe.args)
    finished: Reward = recipe.finish(reward)
    return finished
