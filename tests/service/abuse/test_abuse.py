"""The quick attacks of the table; `scripts/proofs.py "service: abuse"` makes all of them, also on PostgreSQL."""

from collections.abc import Iterator

import pytest

from agent_tunix.execution.isolation import problems
from tests.service.abuse.table import CASES, UPLOADS, attack, unheld_lines
from tests.service.abuse.victim import Victim, attacked

pytestmark = pytest.mark.slow

QUICK = [case.name for case in CASES.values() if not case.is_slow]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    directory = tmp_path_factory.mktemp("abuse")
    with attacked(f"sqlite:///{directory / 'store.db'}", directory) as victim:
        yield victim


def test_every_line_of_the_page_is_held_by_an_attack_or_another_test() -> None:
    assert unheld_lines() == set()


@pytest.mark.parametrize("name", QUICK)
def test_an_attack_is_answered_as_the_page_says_and_the_server_goes_on(victim: Victim, name: str) -> None:
    if name.startswith(UPLOADS) and problems():
        pytest.skip("; ".join(problems()))
    (seen,) = attack(victim, [name])
    assert seen.holds, seen.text
