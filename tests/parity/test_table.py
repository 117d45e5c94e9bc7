"""The table of docs/models.md, as it was last measured."""

from tests.parity.families import FAMILIES
from tests.parity.table import PAGE, from_markdown

from agent_tunix.policy import families


def test_the_page_has_every_family_within_the_bar() -> None:
    rows = from_markdown(PAGE.read_text())
    assert [row.family for row in rows] == list(FAMILIES)
    assert [row for row in rows if not row.holds] == []


def test_every_supported_model_type_is_compared() -> None:
    compared = {config.removesuffix("Config").lower().replace("_", "") for _, config, _ in FAMILIES.values()}
    assert compared == {name.replace("_", "") for name in families.FAMILIES}
