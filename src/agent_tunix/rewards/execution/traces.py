"""Place of a call that exceeded its time, from the traceback that Python's fault handler wrote."""

import linecache
import re
import sysconfig
from pathlib import Path

from agent_tunix.rewards.recipe import RewardRecipe

_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in ')
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])


def last_frame(trace: str, recipe: RewardRecipe) -> str:
    """Return the innermost frame of the user's own code, ` (rewards.py:12: return re.match(…))`; "" if none is known.

    `recipe`: The reward. A file named in its `spec` counts as the user's even among installed packages. For an upload,
    no file is ever read here, because its code can forge a traceback.
    """
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(trace)]
    if recipe.uploaded is not None:
        own = [frame for frame in frames if frame[0] == recipe.uploaded.file]
    else:
        own = [frame for frame in frames if not frame[0].startswith((*_LIBRARIES, _OURS, "<"))]
    if not own and recipe.uploaded is None:
        name = Path(recipe.spec.partition(".py")[0] + ".py").name
        own = [frame for frame in frames if Path(frame[0]).name == name]
    if not own:
        return ""
    file, line = own[0]
    return f" ({file}:{line}: {linecache.getline(file, line).strip()})"
