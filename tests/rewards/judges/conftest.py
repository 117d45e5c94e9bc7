import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import Sample, Score
from agent_tunix.rewards.judges import load_judge
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.judges.limits import Timing
from tests.rewards.judges.endpoint_server import EndpointServer

# A directory with a stand-in for DeepEval.
STAND_IN = Path(__file__).parent / "stand_in"


def forget_deepeval() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "deepeval"]:
        del sys.modules[name]


class FakeTime:
    """A clock that moves only when someone waits; waiting takes no time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []
        self.timing = Timing(lambda: self.now, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


@dataclass
class Bench:
    """An endpoint on the loopback, a clock, and judges that use both, without a cache unless they are given one."""

    server: EndpointServer
    time: FakeTime

    def args(self, **args: Any) -> dict[str, Any]:
        return {"model": "practice", "base_url": self.server.url, "rubric": "Is it good?", "cache": False, **args}

    def judge(self, kind: str = "judge", **args: Any) -> Any:
        return load_judge(kind).bind("tone", self.args(**args))

    def ask(self, response: str = "yes", kind: str = "judge", **args: Any) -> Score:
        (score,) = self.judge(kind, **args).score([Sample(response)])
        assert isinstance(score, Score)
        return score


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, fake_time: FakeTime) -> Iterator[Bench]:
    monkeypatch.setattr(Judge, "timing", fake_time.timing)
    server = EndpointServer()
    yield Bench(server, fake_time)
    server.close()


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture(autouse=True)
def nothing_leaves_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
