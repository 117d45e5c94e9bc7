import sys
from collections.abc import Iterator

import pytest

from agent_tunix.environments import registry


@pytest.fixture(autouse=True)
def no_registration_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if "@" in name or name.partition(".")[0] == "benchmax":  # a directory of the gallery has that name
            del sys.modules[name]
