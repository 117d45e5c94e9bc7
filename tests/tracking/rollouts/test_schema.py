"""The documented columns are those of the files."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from agent_tunix.tracking.rollouts import encoding
from agent_tunix.tracking.rollouts.schema import COLUMNS, COMPONENT_FIELDS, Column, markdown_table

PAGE = Path(__file__).parents[3] / "docs" / "rollouts.md"


@pytest.mark.parametrize("columns", [COLUMNS, COMPONENT_FIELDS], ids=["columns", "components"])
def test_the_page_has_the_table_of_the_schema(columns: tuple[Column, ...]) -> None:
    assert markdown_table(columns) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_every_type_of_the_json_columns() -> None:
    values = [math.nan, 2**10_000, (1,), {1}, b"x", np.float32(1), np.zeros(1), {1: 2}, object()]
    tags = {json.loads(encoding.encode(value))["$type"] for value in values}
    table = PAGE.read_text(encoding="utf-8").partition("### JSON columns")[2]
    assert len(tags) > 6
    assert [name for name in tags if f"`{name}`" not in table] == []
