"""How a reward is built, as plain data: what another process needs to build the same one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_tunix.rewards.calling import Reward
    from agent_tunix.rewards.uploaded import UploadedSource


@dataclass(frozen=True, slots=True)
class RewardRecipe:
    """What one reward is made from. It pickles, and `build` makes the reward again wherever it is unpickled.

    Attributes:
        spec: What the user wrote for it: a name, a dotted path, `file.py:function` or `file.py:Class`.
        name: The name under which it is logged.
        args: Arguments from configuration, by parameter.
        working_directory: Where relative paths begin and `custom_rewards.py` may lie; absolute.
        reward_directories: Where files of components lie.
        modules: Modules or files imported first.
        convention: `auto`, or what a signature means that fits several conventions.
        completions: `text` or `messages` for a TRL function; `auto` where that is still to be found out.
        reward_key: The entry of a miles function's dict that is the reward; None for a number.
        uploaded: The uploaded file that it is, whatever `spec` says; None for all else. What is made of it runs code of
            others, so that it may be built in workers alone.
    """

    spec: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    working_directory: Path = Path()
    reward_directories: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    convention: str = "auto"
    completions: str = "auto"
    reward_key: str | None = None
    uploaded: "UploadedSource | None" = None

    def build(self) -> "Reward":
        """Build the reward.

        Raises:
            RewardError: It cannot be found or loaded here.
        """
        from agent_tunix.rewards.conventions import Settings
        from agent_tunix.rewards.finding import Finder  # which itself hands out recipes

        settings = Settings(self.convention, self.completions, self.reward_key)
        if self.uploaded is not None:
            from agent_tunix.rewards.uploaded import build_uploaded

            return build_uploaded(self.uploaded, self.name, settings).bind(self.name, self.args)
        finder = Finder(self.reward_directories, self.working_directory, settings, self.modules)
        for module in self.modules:
            finder.import_module(module)
        return finder.function(self.spec).bind(self.name, self.args)
