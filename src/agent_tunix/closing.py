"""What is open for the length of a run."""

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """Closed at the end of its `with` block, however that ends."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go; another call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
