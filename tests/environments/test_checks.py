import random
from typing import Any

import pytest

from agent_tunix.environments import adapt_environment
from agent_tunix.environments.checks import check_environment


class Sound:
    """Everything as it should be."""

    def reset(self, seed: int = 0, **row: Any) -> str:
        self.chance = random.Random(seed)
        return "ready"

    def draw(self, sides: int) -> int:
        """Draw a number.

        Args:
            sides: Number of sides.
        """
        return self.chance.randint(1, max(1, sides))

    def get_reward(self) -> float:
        return 0.5


class Random(Sound):
    """Ignores the seed."""

    def draw(self, sides: int) -> int:
        """Draw a number.

        Args:
            sides: Number of sides.
        """
        return random.SystemRandom().randint(0, 10**9)


class Shared(Sound):
    """Keeps its state in the class."""

    drawn = 0

    def reset(self, seed: int = 0, **row: Any) -> str:
        return f"{type(self).drawn} were drawn"

    def draw(self, sides: int) -> int:
        """Draw a number.

        Args:
            sides: Number of sides.
        """
        type(self).drawn += 1
        return 1


class Undescribed(Sound):
    def draw(self, sides, colour=None):  # type: ignore[no-untyped-def]
        return 1


class Raising(Sound):
    def draw(self, sides: int) -> int:
        """Draw a number.

        Args:
            sides: Number of sides.
        """
        raise RuntimeError("no dice")


class Silent(Sound):
    get_reward = None  # type: ignore[assignment]


class Worded(Sound):
    def get_reward(self) -> Any:
        return "good"


class Broken(Sound):
    def reset(self, seed: int = 0, **row: Any) -> str:
        raise RuntimeError("no table")


class Clinging(Sound):
    def close(self) -> None:
        raise RuntimeError("still open")


class Quiet:
    """No tools."""

    def reset(self, **row: Any) -> str:
        return "ready"


class Kept:
    """Text environment that forgets nothing."""

    seen: list[str] = []  # noqa: RUF012

    def reset(self) -> str:
        return str(len(self.seen))

    def step(self, action: str) -> tuple[Any, ...]:
        self.seen.append(action)
        return "ok", 1.0, False, False, {}


@pytest.mark.parametrize(
    ("given", "failed", "notes"),
    [
        (Sound, set(), set()),
        (Random, {"deterministic"}, set()),
        (Shared, {"deterministic", "independent"}, set()),
        (Undescribed, set(), {"schema"}),
        (Raising, set(), {"hostile"}),
        (Worded, {"score"}, set()),
        (Broken, {"reset"}, set()),
        (Clinging, {"reset"}, set()),
        (Quiet, set(), {"schema", "score"}),
        (Kept, {"deterministic", "independent"}, set()),
    ],
)
def test_each_fault_is_found_by_its_check(given: Any, failed: set[str], notes: set[str]) -> None:
    report = check_environment(adapt_environment(given, given.__name__))
    found = {status: {one.check for one in report.findings if one.status == status} for status in ("failed", "note")}
    assert found["failed"] >= failed if failed else not found["failed"]
    assert found["note"] >= notes
    assert report.passed is not bool(found["failed"])
    assert all(one.detail for one in report.findings if one.status != "passed")
    assert all(one.check in report.text for one in report.findings)


def test_a_hint_says_what_to_do() -> None:
    report = check_environment(adapt_environment(Shared, "shared"))
    assert "keep the state in the instance" in report.text or "from `seed`" in report.text
