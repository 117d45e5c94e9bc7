"""The programs that a run will ask for first, loaded before it does, and run once where that is a matter of a moment.

XLA takes up to half a second to load a program, and on a CPU as long again in its first run, in threads that need no
Python; a run that starts spends its first seconds in Python, in one thread. Which programs they are is known no sooner
than the model and the data are: until then the last run of the same kind is taken to say. That is only a guess, and
nothing but time follows from it.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax

from agent_tunix.policy.program_files import SUFFIX, Loaded, load, read_digests, write_whole

# The optimiser's state, an evaluation's sampler, a step's, its reference pass and update, the learning rate;
# what a run asks for later is of other lengths, and may not come again.
_MOST = 6


class Foreseen:
    """Programs for the first device that are being loaded.

    Args:
        directory: Where programs are kept.
        kind: A digest of what the programs of a run follow from, as far as it is known early.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        self._path = directory / f"agent_tunix_foreseen-{kind}{SUFFIX}"
        self._devices = jax.devices()[:1]
        self._listed = read_digests(self._path)[:_MOST]
        self._noted: list[str] = []
        self._noting = threading.Lock()
        self._loading: dict[str, Future[Loaded | None]] = {}
        if self._listed:
            pool = ThreadPoolExecutor(len(self._listed), "load")
            self._loading = {text: pool.submit(_ready, directory, text, self._devices) for text in self._listed}
            pool.shutdown(wait=False)

    def take(self, text: str, devices: Sequence[jax.Device]) -> Loaded | None:
        """The program of a text, once it is loaded; None, at once, where it is not being loaded for these devices.

        A program is given once; what nobody takes goes with this object.
        """
        loading = self._loading.pop(text, None) if list(devices) == self._devices else None
        return None if loading is None else loading.result()

    def note(self, text: str, devices: Sequence[jax.Device]) -> None:
        """Have the next run of this kind foresee a program, where it is for the first device."""
        if list(devices) != self._devices:
            return
        with self._noting:
            if text in self._noted:
                return
            self._noted.append(text)
            listed = [*self._noted, *(other for other in self._listed if other not in self._noted)][:_MOST]
            if set(listed) != set(self._listed):
                self._listed = listed
                write_whole(self._path, "\n".join(listed).encode())


def _ready(directory: Path, text: str, devices: Sequence[jax.Device]) -> Loaded | None:
    loaded = load(directory, text, devices)
    if loaded is not None and loaded.is_brief:
        loaded.rehearse()
    return loaded
