"""A base class for objects that a `with` block closes."""

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """Context manager that closes itself at the end of its `with` block, also after an error."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release everything. Further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
